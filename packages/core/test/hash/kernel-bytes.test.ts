import { readFileSync } from "node:fs";
import { kernelModule } from "@espalier/testing";
import { expect, test } from "vitest";
import wabt from "wabt";
import { kernelMemory } from "../../src/hash/hash-kernel.ts";
import { roundConstants } from "./naive-hash.ts";

const text = new URL("../../src/hash/kernel.wat", import.meta.url);
const kernelText = readFileSync(text, "utf8");
const testFile = "packages/core/test/hash/kernel-bytes.test.ts";

test("the bytes in the sources are those of the text", async () => {
  const parsed = (await wabt()).parseWat("kernel.wat", kernelText);
  parsed.validate();
  await expect(kernelModule(parsed.toBinary({}).buffer, testFile)).toMatchFileSnapshot(
    "../../src/hash/kernel-bytes.ts",
  );
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
