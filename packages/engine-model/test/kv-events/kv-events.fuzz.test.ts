import { captureFolders, type FuzzTarget, fuzzInFile, livePayloads } from "@espalier/testing";
import { encode } from "@msgpack/msgpack";
import { expect, test } from "vitest";
import { encodeEventMessage, eventDialects } from "../../src/kv-events/codec/encode-events.ts";
import { createEventDecoder, defaultDecodeLimits } from "../../src/kv-events/codec/event-decoder.ts";
import { readReplayAnswer, writeSequence } from "../../src/kv-events/codec/replay-frames.ts";

const tokens = Uint32Array.of(5, 6, 7, 8);
const stored = { type: "stored", hashes: [7n, 8n], parentHash: 6n, tokens, blockSize: 2 } as const;
const written = eventDialects.map((dialect) =>
  encodeEventMessage([{ ...stored, adapter: "a", cacheSalt: undefined }], dialect, { timestampS: 5.5, rank: 1 }),
);
const captured = captureFolders().flatMap((folder) => livePayloads(folder).slice(0, 40));
/** TensorRT-LLM tells its events in JSON; over ZeroMQ its fields come as a map. */
const payloads = [...written, ...captured, encode({ ts: 5, events: [{ type: "BlockRemoved", block_hashes: [1] }] })];

const empty = new Uint8Array(0);
const allOnes = new Uint8Array(8).fill(0xff);
const decoder = createEventDecoder();

const targets: readonly FuzzTarget[] = [
  {
    name: "KV events",
    seeds: payloads,
    read(bytes) {
      const { events, refused } = decoder.decode(bytes);
      const { batch } = decoder;
      expect(batch.count).toBe(events);
      if (refused !== undefined) expect(batch.count).toBe(0);
      if (batch.count === 0) return;
      expect(batch.hashStart[batch.count]!).toBeLessThanOrEqual(Math.min(bytes.length, defaultDecodeLimits.maxHashes));
      expect(batch.tokenStart[batch.count]!).toBeLessThanOrEqual(Math.min(bytes.length, defaultDecodeLimits.maxTokens));
    },
  },
  {
    name: "answer of a replay socket",
    seeds: [writeSequence(7), allOnes, payloads[0]!],
    read(bytes, random) {
      const pieces = [empty, bytes, writeSequence(random.integer(9)), payloads[1]!, allOnes];
      const frames = Array.from({ length: random.integer(6) }, () => pieces[random.integer(pieces.length)]!);
      const answer = readReplayAnswer(frames);
      if (answer.kind === "data") expect(Number.isSafeInteger(answer.sequence)).toBe(true);
    },
  },
];

fuzzInFile(test, "whatever comes is read, or left out", targets);
