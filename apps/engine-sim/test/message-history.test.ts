import { expect, test } from "vitest";
import { createMessageHistory } from "../src/event-channel.ts";

const message = (sequence: number) => ({ sequence, payload: Uint8Array.of(sequence % 256) });

test.each([1, 2, 5])("of any number of messages the newest %d are kept", (capacity) => {
  const history = createMessageHistory(capacity);
  expect(history.newest(10)).toEqual([]);
  for (let sequence = 0; sequence < 40; sequence++) {
    history.add(message(sequence));
    const kept = Math.min(capacity, sequence + 1);
    const sequences = history.newest(1_000).map((each) => each.sequence);
    expect(sequences).toEqual(Array.from({ length: kept }, (_, index) => sequence - kept + 1 + index));
    expect(history.newest(0)).toEqual([]);
    expect(history.newest(1)).toEqual([message(sequence)]);
  }
  history.clear();
  expect(history.newest(10)).toEqual([]);
  history.add(message(7));
  expect(history.newest(10)).toEqual([message(7)]);
});
