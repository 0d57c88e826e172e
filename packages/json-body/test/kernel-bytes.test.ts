import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import wabt from "wabt";
import { kernelMemory } from "../src/kernel.ts";

const kernelText = readFileSync(new URL("../src/kernel.wat", import.meta.url), "utf8");
const lineLength = 100;

/** The module of the sources that holds the compiled kernel. */
async function kernelModule(): Promise<string> {
  const tools = await wabt();
  const parsed = tools.parseWat("kernel.wat", kernelText, { simd: true });
  parsed.validate();
  const base64 = Buffer.from(parsed.toBinary({}).buffer).toString("base64");
  parsed.destroy();
  const lines = base64.match(new RegExp(`.{1,${lineLength}}`, "g")) ?? [];
  return [
    "/**",
    " * `kernel.wat`, compiled. After a change of it, run the test of this file with `--update`, which writes it anew:",
    " * `npx vitest run --project unit packages/json-body/test/kernel-bytes.test.ts --update`",
    " */",
    "export const kernelBytes = [",
    ...lines.map((line) => `  "${line}",`),
    '].join("");',
    "",
  ].join("\n");
}

test("the bytes in the sources are those of the text", async () => {
  await expect(await kernelModule()).toMatchFileSnapshot("../src/kernel-bytes.ts");
});

test("the text has the places that the sources have", () => {
  const { textAt, nodeBytes } = kernelMemory;
  for (const at of [textAt, nodeBytes]) expect(kernelText).toContain(`(i32.const ${at})`);
});
