import { encodeEventMessage } from "@espalier/engine-model/kv-events";

/** A payload that stores one block of two tokens under the given hash. */
export function storedPayload(hash: number, timestampS = 0): Uint8Array {
  const tokens = Uint32Array.of(hash, hash + 1);
  const stored = { type: "stored", hashes: [BigInt(hash)], parentHash: undefined, tokens, blockSize: 2 } as const;
  const event = { ...stored, adapter: undefined, cacheSalt: undefined };
  return encodeEventMessage([event], "vllm-0.32", { timestampS, rank: 0 });
}

/** A payload of roughly this many bytes, newer than any other. */
export function largePayload(hash: number, sizeBytes: number): Uint8Array {
  const tokens = new Uint32Array(Math.ceil(sizeBytes / 5)).fill(0xffff_ffff);
  const stored = { type: "stored", hashes: [BigInt(hash)], parentHash: undefined, tokens } as const;
  const event = { ...stored, blockSize: tokens.length, adapter: undefined, cacheSalt: undefined };
  return encodeEventMessage([event], "vllm-0.32", { timestampS: 2_000_000_000, rank: 0 });
}

/** Not msgpack of any message. */
export const junkPayload = Uint8Array.of(0xc1, 0xc1, 0xc1);
