import { expect, test } from "vitest";
import { EpochOrder, epochId, maxEpochsPerTarget } from "../../src/facts/engine-epoch.ts";

const first = { sequence: 3, timestampUs: 1_000, checksum: 5 };
const second = { sequence: 0, timestampUs: 2_000, checksum: 6 };

test("an epoch is told as one object until its predecessor becomes known", () => {
  const order = new EpochOrder();
  const known = order.declare({ ...second, predecessor: null });
  const reported = known.epoch;
  expect(reported).toEqual({ ...second, predecessor: null });
  expect(order.declare({ ...second, predecessor: null }).epoch).toBe(reported);
  order.declare({ ...first, predecessor: null });
  expect(known.epoch).toBe(reported);
  const after = order.declare({ ...second, predecessor: epochId(first) });
  expect(after).toBe(known);
  expect(known.epoch).toEqual({ ...second, predecessor: epochId(first) });
  expect(order.newest).toBe(known);
});

test("of several predecessors, the one that was named first is told", () => {
  const order = new EpochOrder();
  const known = order.declare({ ...second, predecessor: epochId(first) });
  const reported = known.epoch;
  order.declare({ ...second, predecessor: "9.9.9" });
  expect(known.predecessors).toEqual([epochId(first), "9.9.9"]);
  expect(known.epoch).toBe(reported);
});

test("no epoch is told as its own predecessor", () => {
  const known = new EpochOrder().declare({ ...first, predecessor: epochId(first) });
  expect(known.epoch.predecessor).toBeNull();
});

// Symptom: an engine whose clock had once run ahead had its cache of that time back, as the present one, after 64 restarts.
// Mechanism: the epoch with the earliest stamp was forgotten first. That was the one that named the epoch of the wrong clock as
// its predecessor, and without it the latest stamp of all won.
test("an epoch with stamps ahead of all others stays over when as many have followed as are remembered, and one more", () => {
  const order = new EpochOrder();
  const ahead = { sequence: 0, timestampUs: 1_000_000, checksum: 1, predecessor: null };
  let predecessor = order.declare(ahead).id;
  for (let restart = 1; restart <= 3 * maxEpochsPerTarget; restart++) {
    const known = order.declare({ sequence: 0, timestampUs: restart, checksum: 1, predecessor });
    expect(order.newest).toBe(known);
    expect(order.size).toBeLessThanOrEqual(maxEpochsPerTarget);
    predecessor = known.id;
  }
});

test("epochs that name each other in a circle are forgotten like others", () => {
  const order = new EpochOrder();
  const idOf = (number: number) => epochId({ sequence: 0, timestampUs: number, checksum: 1 });
  for (let number = 0; number < 2 * maxEpochsPerTarget; number++) {
    order.declare({ sequence: 0, timestampUs: number, checksum: 1, predecessor: idOf(number ^ 1) });
    expect(order.size).toBeLessThanOrEqual(maxEpochsPerTarget);
  }
  const after = order.declare({ sequence: 0, timestampUs: 1_000, checksum: 1, predecessor: null });
  expect(order.newest).toBe(after);
});

test("an epoch is outranked by those dated later, but not by such as follow it", () => {
  const order = new EpochOrder();
  const late = (timestampUs: number, predecessor: string | null) =>
    order.declare({ sequence: 0, timestampUs, checksum: 1, predecessor }).id;
  order.declare({ ...second, predecessor: null });
  late(1_500, null);
  const unrelated = [late(3_000, null), late(4_000, null)];
  const follower = late(5_000, epochId(second));
  late(6_000, follower);
  expect(order.outranking(second)).toEqual(unrelated);
});
