import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createEventDecoder } from "../../../src/kv-events/codec/event-decoder.ts";
import { decodeNaively } from "./naive-decoder.ts";
import { plainEvents } from "./plain-events.ts";
import { randomMessage } from "./random-messages.ts";

const seeds = [1, 2, 3, 4, 5, 6, 7, 8];
const messagesPerSeed = 2_500;

test.each(seeds)("seed %i: random messages of all dialects decode as a naive decoder reads them", (seed) => {
  const random = createSeededRandom(seed);
  const decoder = createEventDecoder();
  const seen = { events: 0, unknown: 0, malformed: 0 };
  for (let message = 0; message < messagesPerSeed; message++) {
    const payload = randomMessage(random);
    const expected = decodeNaively(payload);
    const report = { ...decoder.decode(payload) };
    const where = `seed ${seed}, message ${message}: ${Buffer.from(payload).toString("hex")}`;
    expect(report.refused, where).toBeUndefined();
    expect(decoder.batch.rank, where).toBe(expected.rank);
    expect(decoder.batch.timestampS, where).toBe(expected.timestampS);
    expect(plainEvents(decoder.batch), where).toEqual(expected.events);
    expect([report.unknownEvents, report.malformedEvents], where).toEqual([expected.unknown, expected.malformed]);
    seen.events += report.events;
    seen.unknown += report.unknownEvents;
    seen.malformed += report.malformedEvents;
  }
  expect(seen.events).toBeGreaterThan(messagesPerSeed * 2);
  expect(seen.unknown).toBeGreaterThan(100);
  expect(seen.malformed).toBeGreaterThan(100);
});
