import { expect, test } from "vitest";
import {
  readReplayAnswer,
  readReplayRequest,
  readSequence,
  replayEndFrames,
  replayFrames,
  writeSequence,
} from "../../../src/kv-events/codec/replay-frames.ts";

const client = Uint8Array.of(0, 1, 2, 3, 4);
const empty = new Uint8Array(0);
const payload = Uint8Array.of(0x93, 0xc0, 0x90, 0xc0);
const edges = [0, 1, 255, 256, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, 2 ** 48, 2 ** 53 - 2, 2 ** 53 - 1];

const big = (value: bigint): Uint8Array => {
  const frame = Buffer.alloc(8);
  frame.writeBigUInt64BE(value);
  return frame;
};

test.each(edges)("number %i: it is written as eight bytes, and read from them", (sequence) => {
  expect([...writeSequence(sequence)]).toEqual([...big(BigInt(sequence))]);
  expect(readSequence(writeSequence(sequence))).toBe(sequence);
  // A frame may lie anywhere in what the socket received.
  const buffer = new Uint8Array(24).fill(0xee);
  buffer.set(writeSequence(sequence), 9);
  expect(readSequence(buffer.subarray(9, 17))).toBe(sequence);
});

test.each([2n ** 53n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n])(
  "number %i is beyond what a reader takes",
  (value) => {
    expect(readSequence(big(value))).toBeUndefined();
    expect(readReplayAnswer([empty, big(value), payload])).toEqual({ kind: "malformed" });
  },
);

test.each([0, 1, 7, 9, 16])("a frame of %i bytes is no number", (length) => {
  expect(readSequence(new Uint8Array(length))).toBeUndefined();
});

test.each(edges)("what a publisher answers with number %i is what a reader makes of it, in both forms", (sequence) => {
  for (const topic of [undefined, empty, Buffer.from("kv-events"), new Uint8Array(8).fill(0xff)]) {
    const [to, ...frames] = replayFrames(client, topic, { sequence, payload });
    expect(to).toBe(client);
    expect(frames).toHaveLength(topic ? 4 : 3);
    expect(readReplayAnswer(frames)).toEqual({ kind: "data", sequence, payload });
  }
});

test.each([true, false])("the end is read as one, with a topic frame: %s", (carriesTopic) => {
  const [to, ...frames] = replayEndFrames(client, carriesTopic);
  expect(to).toBe(client);
  expect(readReplayAnswer(frames)).toEqual({ kind: "end" });
});

const ones = new Uint8Array(8).fill(0xff);
test.each([
  { what: "nothing", frames: [] },
  { what: "two frames", frames: [empty, ones] },
  { what: "five frames", frames: [empty, empty, empty, ones, empty] },
  { what: "no delimiter", frames: [payload, writeSequence(1), payload] },
  { what: "a number without a payload", frames: [empty, writeSequence(1), empty] },
  { what: "all ones with a payload", frames: [empty, ones, payload] },
  { what: "nine ones", frames: [empty, new Uint8Array(9).fill(0xff), empty] },
  { what: "seven ones and another byte", frames: [empty, ones.with(7, 0xfe), empty] },
  { what: "the older form with its frames turned", frames: [empty, payload, writeSequence(1)] },
])("$what is no answer", ({ frames }) => {
  expect(readReplayAnswer(frames)).toEqual({ kind: "malformed" });
});

test.each([
  { what: "from the beginning", start: 0n, read: 0 },
  { what: "from beyond 32 bits", start: 2n ** 32n + 5n, read: 2 ** 32 + 5 },
  { what: "from the last exact number", start: 2n ** 53n - 1n, read: 2 ** 53 - 1 },
  { what: "from the end of all numbers", start: 2n ** 64n - 1n, read: 2 ** 64 },
])("a request $what is read", ({ start, read }) => {
  expect(readReplayRequest([client, empty, big(start)])).toEqual({ client, start: read });
});

test.each([
  { what: "no frames", frames: [] },
  { what: "the client only", frames: [client] },
  { what: "no start", frames: [client, empty] },
  { what: "no delimiter", frames: [client, big(0n)] },
  { what: "a delimiter that is not empty", frames: [client, payload, big(0n)] },
  { what: "a start of four bytes", frames: [client, empty, new Uint8Array(4)] },
  { what: "a start of nine bytes", frames: [client, empty, new Uint8Array(9)] },
  { what: "a frame behind the start", frames: [client, empty, big(0n), empty] },
])("a request with $what is none", ({ frames }) => {
  expect(readReplayRequest(frames)).toBeUndefined();
});
