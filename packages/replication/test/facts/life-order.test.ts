import { expect, test } from "vitest";
import { LifeOrder, lifeId, maxLivesPerTarget } from "../../src/facts/life.ts";

const first = { sequence: 3, timestampUs: 1_000, checksum: 5 };
const second = { sequence: 0, timestampUs: 2_000, checksum: 6 };

test("a life is told as one object until its predecessor becomes known", () => {
  const order = new LifeOrder();
  const known = order.declare({ ...second, predecessor: null });
  const told = known.life;
  expect(told).toEqual({ ...second, predecessor: null });
  expect(order.declare({ ...second, predecessor: null }).life).toBe(told);
  order.declare({ ...first, predecessor: null });
  expect(known.life).toBe(told);
  const after = order.declare({ ...second, predecessor: lifeId(first) });
  expect(after).toBe(known);
  expect(known.life).toEqual({ ...second, predecessor: lifeId(first) });
  expect(order.newest).toBe(known);
});

test("of several predecessors, the one that was named first is told", () => {
  const order = new LifeOrder();
  const known = order.declare({ ...second, predecessor: lifeId(first) });
  const told = known.life;
  order.declare({ ...second, predecessor: "9.9.9" });
  expect(known.predecessors).toEqual([lifeId(first), "9.9.9"]);
  expect(known.life).toBe(told);
});

test("no life is told as its own predecessor", () => {
  const known = new LifeOrder().declare({ ...first, predecessor: lifeId(first) });
  expect(known.life.predecessor).toBeNull();
});

// Symptom: an engine whose clock had once run ahead had its cache of that time back, as the present one, after 64 restarts.
// Mechanism: the life with the earliest stamp was forgotten first. That was the one that named the life of the wrong clock as
// its predecessor, and without it the latest stamp of all won.
test("a life with stamps ahead of all others stays over when as many have followed as are remembered, and one more", () => {
  const order = new LifeOrder();
  const ahead = { sequence: 0, timestampUs: 1_000_000, checksum: 1, predecessor: null };
  let predecessor = order.declare(ahead).id;
  for (let restart = 1; restart <= 3 * maxLivesPerTarget; restart++) {
    const known = order.declare({ sequence: 0, timestampUs: restart, checksum: 1, predecessor });
    expect(order.newest).toBe(known);
    expect(order.size).toBeLessThanOrEqual(maxLivesPerTarget);
    predecessor = known.id;
  }
});

test("lives that name each other in a circle are forgotten like others", () => {
  const order = new LifeOrder();
  const idOf = (number: number) => lifeId({ sequence: 0, timestampUs: number, checksum: 1 });
  for (let number = 0; number < 2 * maxLivesPerTarget; number++) {
    order.declare({ sequence: 0, timestampUs: number, checksum: 1, predecessor: idOf(number ^ 1) });
    expect(order.size).toBeLessThanOrEqual(maxLivesPerTarget);
  }
  const after = order.declare({ sequence: 0, timestampUs: 1_000, checksum: 1, predecessor: null });
  expect(order.newest).toBe(after);
});

test("a life is outranked by those dated later, but not by such as follow it", () => {
  const order = new LifeOrder();
  const late = (timestampUs: number, predecessor: string | null) =>
    order.declare({ sequence: 0, timestampUs, checksum: 1, predecessor }).id;
  order.declare({ ...second, predecessor: null });
  late(1_500, null);
  const unrelated = [late(3_000, null), late(4_000, null)];
  const follower = late(5_000, lifeId(second));
  late(6_000, follower);
  expect(order.outranking(second)).toEqual(unrelated);
});
