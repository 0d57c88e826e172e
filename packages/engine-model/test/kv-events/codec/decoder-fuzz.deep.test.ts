import { createSeededRandom, type Random, systemClock } from "@espalier/core";
import { decode, encode } from "@msgpack/msgpack";
import { expect, test } from "vitest";
import { createEventDecoder, refusalReasons } from "../../../src/kv-events/codec/event-decoder.ts";
import { plainEvents } from "./plain-events.ts";
import { randomMessage } from "./random-messages.ts";

/** Per seed. */
const messageCount = 25_000;

/** Whatever came in, what comes out is consistent: a batch that can be walked, and a report that fits it. */
function checkOutcome(decoder: ReturnType<typeof createEventDecoder>, payload: Uint8Array, where: string): string {
  const report = decoder.decode(payload);
  const { batch } = decoder;
  if (batch.count !== report.events) throw new Error(`${where}: ${batch.count} events, reported ${report.events}`);
  if (report.refused !== undefined && (batch.count > 0 || !refusalReasons.includes(report.refused))) {
    throw new Error(`${where}: refused as ${report.refused} with ${batch.count} events`);
  }
  const hashes = batch.hashStart[batch.count]!;
  const tokens = batch.tokenStart[batch.count]!;
  // Every hash and token takes a byte at least.
  if (batch.count > 0 && (hashes > payload.length || tokens > payload.length)) {
    throw new Error(`${where}: ${hashes} hashes and ${tokens} tokens of ${payload.length} bytes`);
  }
  if (report.refused === undefined) checkWhole(payload, where);
  return report.refused ?? "accepted";
}

/** Whatever is accepted is one whole msgpack value; the library says so in a RangeError when it is not. */
function checkWhole(payload: Uint8Array, where: string): void {
  try {
    decode(payload, { useBigInt64: true });
  } catch (error) {
    // The library also refuses keys of maps that are no strings; such maps are skipped.
    if (error instanceof RangeError) throw new Error(`${where}: accepted, but ${error.message}`);
  }
}

function mutated(random: Random, payload: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(payload);
  for (let change = random.integer(4); change >= 0; change--) {
    bytes[random.integer(bytes.length)] = random.integer(256);
  }
  const cut = random.integer(4);
  if (cut === 0) return bytes.subarray(0, random.integer(bytes.length + 1));
  return cut === 1 ? Uint8Array.from([...bytes, ...bytes.subarray(0, random.integer(8))]) : bytes;
}

test.each([11, 12, 13, 14])(
  "seed %i: mutated messages are never read wrongly, beyond their end, or for long",
  (seed) => {
    const random = createSeededRandom(seed);
    const decoder = createEventDecoder();
    const sources = Array.from({ length: 500 }, () => randomMessage(random));
    const outcomes = new Set<string>();
    let longestMs = 0;
    for (let message = 0; message < messageCount; message++) {
      const payload = mutated(random, sources[random.integer(sources.length)]!);
      const startMs = systemClock.nowMs();
      outcomes.add(checkOutcome(decoder, payload, `seed ${seed}, message ${message}`));
      longestMs = Math.max(longestMs, systemClock.nowMs() - startMs);
    }
    expect([...outcomes].sort()).toEqual(["accepted", "envelope", "invalid", "trailing", "truncated"]);
    // Microseconds in truth; a busy machine may take the processor away for long.
    expect(longestMs).toBeLessThan(2_000);
  },
);

test.each([21, 22, 23, 24])("seed %i: random bytes", (seed) => {
  const random = createSeededRandom(seed);
  const decoder = createEventDecoder();
  // Heads of arrays, maps and strings are frequent, so that reading goes deeper than a byte.
  const heads = [0x91, 0x92, 0x93, 0x82, 0xdc, 0xdd, 0xde, 0xdf, 0xd9, 0xda, 0xdb, 0xc4, 0xc6, 0xcf, 0xcb, 0xc7, 0xc9];
  for (let message = 0; message < messageCount; message++) {
    const bytes = Uint8Array.from({ length: random.integer(64) }, () =>
      random.integer(3) === 0 ? heads[random.integer(heads.length)]! : random.integer(256),
    );
    checkOutcome(decoder, bytes, `seed ${seed}, message ${message}`);
  }
});

test("every prefix of a message is refused as truncated", () => {
  const random = createSeededRandom(31);
  const decoder = createEventDecoder();
  for (let message = 0; message < 200; message++) {
    const payload = randomMessage(random);
    for (let length = 0; length < payload.length; length++) {
      const report = decoder.decode(payload.subarray(0, length));
      expect(report.refused, `message ${message}, ${length} of ${payload.length} bytes`).toBe("truncated");
    }
  }
});

test("a message reads the same wherever in its buffer it lies, and after any other", () => {
  const random = createSeededRandom(32);
  const used = createEventDecoder();
  for (let message = 0; message < 500; message++) {
    const payload = randomMessage(random);
    const buffer = new Uint8Array(payload.length + 40).fill(0xcf);
    const offset = random.integer(40);
    buffer.set(payload, offset);
    const fresh = createEventDecoder();
    expect(used.decode(buffer.subarray(offset, offset + payload.length))).toEqual(fresh.decode(payload));
    expect(plainEvents(used.batch)).toEqual(plainEvents(fresh.batch));
  }
});

test("values nested a million deep cost neither stack nor memory", () => {
  const depth = 1_000_000;
  const decoder = createEventDecoder();
  const nested = new Uint8Array(depth + 1).fill(0x91);
  nested[depth] = 0xc0;
  expect(decoder.decode(nested).refused).toBe("envelope");
  const event = encode([1.5, [["BlockRemoved", [1], "GPU", 0, null]], null]);
  const at = event.length - 2;
  const deep = Uint8Array.from([...event.subarray(0, at)]);
  const payload = Buffer.concat([deep, nested, Uint8Array.of(0xc0)]);
  expect(decoder.decode(payload)).toMatchObject({ refused: undefined, events: 1 });
});
