import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { SequenceTracker } from "../../src/events/stream-follower.ts";

test.each([2 ** 32, 2 ** 53 - 64])("a stream that passes %i is followed without a jump", (middle) => {
  const random = createSeededRandom(81);
  const tracker = new SequenceTracker(16);
  tracker.accept(middle - 32, 7);
  for (let sequence = middle - 31; sequence < middle + 32; sequence++) {
    const checksum = random.integer(2 ** 32);
    expect(tracker.relate(sequence, checksum)).toBe("next");
    expect(tracker.relate(sequence + 1, checksum)).toBe("ahead");
    tracker.accept(sequence, checksum);
    expect(tracker.last).toBe(sequence);
    expect(tracker.relate(sequence, checksum)).toBe("same");
    expect(tracker.relate(sequence, checksum ^ 0x8000_0000)).toBe("changed");
    expect(tracker.relate(sequence - 16, 7)).toBe("unknown");
  }
});

test("a checksum of 0 is remembered as any other, and so is a signed one", () => {
  const tracker = new SequenceTracker(4);
  tracker.accept(0, 0);
  expect(tracker.relate(0, 0)).toBe("same");
  expect(tracker.relate(0, 2)).toBe("changed");
  // Bits of a signed 32-bit number are the same as those of the unsigned one.
  tracker.accept(1, -1);
  expect(tracker.relate(1, 2 ** 32 - 1)).toBe("same");
});
