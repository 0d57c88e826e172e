import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { encode } from "@msgpack/msgpack";
import { expect, test } from "vitest";
import { encodeEventMessage, eventDialects } from "../src/codec/encode-events.ts";
import { createEventDecoder, defaultDecodeLimits } from "../src/codec/event-decoder.ts";
import { readReplayAnswer, writeSequence } from "../src/codec/replay-frames.ts";
import { readSglangEventSources, readVllmEventSources } from "../src/feed/event-sources.ts";
import { captureFolders, livePayloads } from "./codec/captured-messages.ts";
import { allOnes, empty, liveFrames } from "./feed/fake-transport.ts";
import { startFeed } from "./feed/feed-harness.ts";
import { storedPayload } from "./feed/messages.ts";

const json = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
const parsed = (bytes: Uint8Array): unknown => {
  try {
    return JSON.parse(Buffer.from(bytes).toString());
  } catch {
    return undefined;
  }
};

const tokens = Uint32Array.of(5, 6, 7, 8);
const stored = { type: "stored", hashes: [7n, 8n], parentHash: 6n, tokens, blockSize: 2 } as const;
const written = eventDialects.map((dialect) =>
  encodeEventMessage([{ ...stored, adapter: "a", cacheSalt: undefined }], dialect, { timestampS: 5.5, rank: 1 }),
);
const captured = captureFolders().flatMap((folder) => livePayloads(folder).slice(0, 40));
/** TensorRT-LLM tells its events in JSON; over ZeroMQ its fields come as a map. */
const payloads = [...written, ...captured, encode({ ts: 5, events: [{ type: "BlockRemoved", block_hashes: [1] }] })];

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
    name: "frames of an event socket",
    seeds: payloads,
    async read(bytes, random) {
      const feed = await startFeed({ replay: random.integer(2) === 0 });
      feed.connect();
      feed.engine.publish(1 + random.integer(4));
      const frames = liveFrames(random.integer(8), bytes);
      const count = random.integer(3) === 0 ? random.integer(6) : frames.length;
      const cut = Array.from({ length: count }, (_, at) => frames[at] ?? bytes);
      if (random.integer(3) === 0) cut[random.integer(cut.length + 1)] = bytes;
      feed.socket.tell.onMessage(cut);
      feed.engine.publish(2);
      feed.time.advance(5_000);
      expect(feed.state).toMatch(/^[a-z]+ [a-z-]+$/);
    },
  },
  {
    name: "answer of a replay socket",
    seeds: [writeSequence(7), allOnes, storedPayload(9)],
    read(bytes, random) {
      const pieces = [empty, bytes, writeSequence(random.integer(9)), storedPayload(3), allOnes];
      const frames = Array.from({ length: random.integer(6) }, () => pieces[random.integer(pieces.length)]!);
      const answer = readReplayAnswer(frames);
      if (answer.kind === "data") expect(Number.isSafeInteger(answer.sequence)).toBe(true);
    },
  },
  {
    name: "where an engine publishes",
    seeds: [
      json({ 0: { publisher: "zmq", endpoint: "tcp://*:5557", replay_endpoint: "tcp://*:5558", topic: "" } }),
      json({
        kv_events: { publisher: "zmq", endpoint_host: "*", endpoint_port_base: 5557, dp_size: 4, block_size: 16 },
      }),
    ],
    read(bytes) {
      const answer = parsed(bytes);
      const sources = [...readVllmEventSources(answer, "host"), ...readSglangEventSources(answer, "host")];
      expect(sources.length).toBeLessThanOrEqual(2_048);
      for (const { endpoint } of sources) expect(endpoint).toMatch(/^(tcp|ipc|inproc):\/\//);
    },
  },
];

fuzzInFile(test, "whatever comes is read, or left out", targets);
