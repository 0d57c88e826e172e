import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createBatchBuffer } from "../../../src/kv-events/publish/replay-responder.ts";

test.each([1, 2, 7, 100])("a buffer of %i answers as an array would", (capacity) => {
  const random = createSeededRandom(capacity);
  const buffer = createBatchBuffer(capacity);
  let kept: number[] = [];
  let sequence = 0;
  for (let step = 0; step < 3_000; step++) {
    if (random.integer(400) === 0) {
      buffer.clear();
      kept = [];
      sequence = 0;
    }
    buffer.add({ sequence, payload: Uint8Array.of(sequence & 0xff) });
    kept = [...kept, sequence].slice(-capacity);
    // Now and then numbers are skipped.
    sequence += random.integer(10) === 0 ? 3 : 1;
    const start = Math.max(0, sequence - random.integer(2 * capacity + 3));
    const found = buffer.from(start);
    expect(found.map((batch) => batch.sequence)).toEqual(kept.filter((one) => one >= start));
    expect(found.every((batch) => batch.payload[0] === (batch.sequence & 0xff))).toBe(true);
  }
});

test("an empty buffer has nothing", () => {
  expect(createBatchBuffer(3).from(0)).toEqual([]);
});
