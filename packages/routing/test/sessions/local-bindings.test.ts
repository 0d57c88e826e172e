import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createLocalBindings, maxLocalBindings } from "../../src/session-bindings.ts";

test("a key is bound until its time is over, or to something else when it is set again", () => {
  const { clock, ...time } = createVirtualTime();
  const bindings = createLocalBindings(clock);
  expect([bindings.get("a"), bindings.leftMs("a")]).toEqual([undefined, 0]);
  bindings.set("a", "e1", 1_000);
  time.advance(400);
  expect([bindings.get("a"), bindings.leftMs("a")]).toEqual(["e1", 600]);
  bindings.set("a", "e2", 1_000);
  time.advance(999);
  expect([bindings.get("a"), bindings.leftMs("a")]).toEqual(["e2", 1]);
  time.advance(1);
  expect([bindings.get("a"), bindings.leftMs("a")]).toEqual([undefined, 0]);
});

test("one past the capacity, the key that was set longest ago goes", () => {
  const { clock } = createVirtualTime();
  const bindings = createLocalBindings(clock, 3);
  for (const key of ["a", "b", "c"]) bindings.set(key, "e1", 1_000);
  bindings.set("a", "e2", 1_000);
  bindings.set("d", "e1", 1_000);
  expect(["a", "b", "c", "d"].map((key) => bindings.get(key))).toEqual(["e2", undefined, "e1", "e1"]);
});

test("the capacity is 100,000 by default", () => {
  const { clock } = createVirtualTime();
  const bindings = createLocalBindings(clock);
  expect(maxLocalBindings).toBe(100_000);
  for (let number = 0; number <= maxLocalBindings; number++) bindings.set(`session-${number}`, "e", 1_000);
  expect(["session-0", "session-1", "session-100000"].map((key) => bindings.get(key))).toEqual([undefined, "e", "e"]);
});

test("long keys that differ at their ends are kept apart", () => {
  const { clock } = createVirtualTime();
  const bindings = createLocalBindings(clock);
  const long = "k".repeat(1_024);
  for (const end of ["1", "2"]) bindings.set(long + end, `e${end}`, 1_000);
  expect(["1", "2", "3"].map((end) => bindings.get(long + end))).toEqual(["e1", "e2", undefined]);
});
