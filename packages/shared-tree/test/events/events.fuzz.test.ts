import { encodeEventMessage, eventDialects } from "@espalier/engine-model/kv-events";
import { captureFolders, type FuzzTarget, fuzzInFile, livePayloads } from "@espalier/testing";
import { encode } from "@msgpack/msgpack";
import { expect, test } from "vitest";
import { readSglangEventSources, readVllmEventSources } from "../../src/events/event-sources.ts";
import { liveFrames } from "./fake-transport.ts";
import { startFeed } from "./feed-harness.ts";

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

const targets: readonly FuzzTarget[] = [
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

fuzzInFile(test, "whatever an event socket or an engine's own account brings is read, or left out", targets);
