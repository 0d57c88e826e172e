import { expect, test } from "vitest";
import { lifeId } from "../../src/facts/life.ts";
import { LifeOrder } from "../../src/facts/life-order.ts";

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
