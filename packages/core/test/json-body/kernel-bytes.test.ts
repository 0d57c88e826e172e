import { readFileSync } from "node:fs";
import { kernelModule } from "@espalier/testing";
import { expect, test } from "vitest";
import wabt from "wabt";
import { kernelMemory } from "../../src/json-body/kernel.ts";

const text = new URL("../../src/json-body/kernel.wat", import.meta.url);
const testFile = "packages/core/test/json-body/kernel-bytes.test.ts";

test("the bytes in the sources are those of the text", async () => {
  const parsed = (await wabt()).parseWat("kernel.wat", readFileSync(text, "utf8"), { simd: true });
  parsed.validate();
  await expect(kernelModule(parsed.toBinary({}).buffer, testFile)).toMatchFileSnapshot(
    "../../src/json-body/kernel-bytes.ts",
  );
});

test("the text has the places that the sources have", () => {
  const { textAt, nodeBytes } = kernelMemory;
  for (const at of [textAt, nodeBytes]) expect(readFileSync(text, "utf8")).toContain(`(i32.const ${at})`);
});
