import { afterEach, expect, test, vi } from "vitest";
import { requireLittleEndian } from "../../src/hash/hash-kernel.ts";

afterEach(() => {
  vi.unstubAllGlobals();
  vi.resetModules();
});

/** The modules as a process without WebAssembly loads them, such as `node --jitless`. */
async function withoutWebAssembly() {
  vi.stubGlobal("WebAssembly", undefined);
  vi.resetModules();
  return {
    ...(await import("../../src/hash/block-hasher.ts")),
    ...(await import("../../src/hash/text-hasher.ts")),
    ...(await import("../../src/hash/block-digests.ts")),
  };
}

test("without WebAssembly JavaScript hashes, with the same results", async () => {
  const { createBlockHasher: normal } = await import("../../src/hash/block-hasher.ts");
  const { chainRoot: normalRoot } = await import("../../src/hash/text-hasher.ts");
  const { addContentKey: normalKey } = await import("../../src/hash/block-digests.ts");
  const root = normalRoot({ seed: "s", model: "m", blockSize: 16, unit: "tokens" });
  const tokens = Uint32Array.from({ length: 100 }, (_, index) => index * index);
  const [chain, contents] = [new Uint32Array(12), new Uint32Array(12)];
  normal().hashTokens({ tokens, blockSize: 16, parent: root, chain, contents });
  normalKey(contents, 2, "image");

  const other = await withoutWebAssembly();
  const hasher = other.createBlockHasher();
  expect(hasher.kernel).toBe("js");
  expect(other.chainRoot({ seed: "s", model: "m", blockSize: 16, unit: "tokens" })).toEqual(root);
  const [otherChain, otherContents] = [new Uint32Array(12), new Uint32Array(12)];
  hasher.hashTokens({ tokens, blockSize: 16, parent: root, chain: otherChain, contents: otherContents });
  other.addContentKey(otherContents, 2, "image");
  expect(otherChain).toEqual(chain);
  expect(otherContents).toEqual(contents);
});

test("asking for WebAssembly where it is switched off is an error", async () => {
  const { createBlockHasher } = await withoutWebAssembly();
  expect(() => createBlockHasher({ kernel: "wasm" })).toThrow("WebAssembly is disabled");
});

test("a processor that is not little-endian is refused", () => {
  expect(() => requireLittleEndian(Uint8Array.of(0, 0, 0, 1))).toThrow("little-endian");
  expect(() => requireLittleEndian(Uint8Array.of(1, 0, 0, 0))).not.toThrow();
  expect(() => requireLittleEndian()).not.toThrow();
});
