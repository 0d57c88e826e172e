import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import wabt from "wabt";
import { kernelMemory } from "../../src/hash/kernel-memory.ts";
import { roundConstants } from "./naive-hash.ts";

const kernelText = readFileSync(new URL("../../src/hash/kernel.wat", import.meta.url), "utf8");
const lineLength = 100;

/** The module of the sources that holds the compiled kernel. */
async function kernelModule(): Promise<string> {
  const tools = await wabt();
  const parsed = tools.parseWat("kernel.wat", kernelText);
  parsed.validate();
  const base64 = Buffer.from(parsed.toBinary({}).buffer).toString("base64");
  parsed.destroy();
  const lines = base64.match(new RegExp(`.{1,${lineLength}}`, "g")) ?? [];
  return [
    "/**",
    " * `kernel.wat`, compiled. After a change of it, run the test of this file with `--update`, which writes it anew:",
    " * `npx vitest run --project unit packages/prefix-index/test/hash/kernel-bytes.test.ts --update`",
    " */",
    "export const kernelBytes = [",
    ...lines.map((line) => `  "${line}",`),
    '].join("");',
    "",
  ].join("\n");
}

test("the bytes in the sources are those of the text", async () => {
  await expect(await kernelModule()).toMatchFileSnapshot("../../src/hash/kernel-bytes.ts");
});

test("the text has the constants that it names, and the places that the sources have", () => {
  for (const [index, constant] of roundConstants.entries()) {
    const signed = BigInt.asIntN(64, constant);
    expect(kernelText).toMatch(new RegExp(`;;.* K\\[${index}\\] +${signed}\\b`));
    expect(kernelText).toContain(`(i64.const ${signed})`);
  }
  const { inputBytes, contentsAt, chainAt, valueAt, lanesAt, totalBytes, maxBlocks } = kernelMemory;
  expect([contentsAt, chainAt - contentsAt, valueAt - chainAt]).toEqual([inputBytes, 8 * maxBlocks, 8 * maxBlocks]);
  for (const at of [contentsAt, chainAt]) expect(kernelText).toContain(`offset=${at} `);
  for (const at of [valueAt, lanesAt]) expect(kernelText).toContain(`(i32.const ${at})`);
  expect(kernelText).toContain(`(memory (export "memory") ${totalBytes / 65_536} ${totalBytes / 65_536})`);
});
