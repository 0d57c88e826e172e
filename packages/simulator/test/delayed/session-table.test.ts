import { createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { arrivalsNear } from "../../src/delayed/delivery.ts";
import { SessionTable } from "../../src/delayed/session-table.ts";

const later = (atMs: number): number => atMs + 20;

function rig(routers = 2, capacity?: number) {
  const { clock, ...time } = createVirtualTime();
  const channel = new SessionTable({
    clock,
    arrivals: [arrivalsNear({ factsDueMs: undefined, placementsDueMs: later, loadDueMs: later })],
    ...(capacity === undefined ? {} : { capacity }),
  });
  const views = Array.from({ length: routers }, (_, router) => channel.seenBy(router));
  return { channel, clock, time, views, all: (key: string) => views.map((view) => view.get(key)) };
}

test("a binding counts at its router at once, at the others after the delay, everywhere until its time is over", () => {
  const { time, views, all } = rig(3);
  views[1]!.set("s", "e4", 1_000);
  expect(all("s")).toEqual([undefined, "e4", undefined]);
  time.advance(19);
  expect(all("s")).toEqual([undefined, "e4", undefined]);
  time.advance(1);
  expect(all("s")).toEqual(["e4", "e4", "e4"]);
  expect(views.map((view) => view.leftMs("s"))).toEqual([980, 980, 980]);
  time.advance(980);
  expect(all("s")).toEqual([undefined, undefined, undefined]);
  expect(views.map((view) => view.leftMs("s"))).toEqual([0, 0, 0]);
});

test("of two routers that bind a session before they hear of each other the later one's word holds", () => {
  const { time, views, all } = rig();
  views[0]!.set("s", "e0", 1_000);
  time.advance(5);
  views[1]!.set("s", "e1", 1_000);
  expect(all("s")).toEqual(["e0", "e1"]);
  time.advance(15);
  expect(all("s")).toEqual(["e0", "e1"]);
  time.advance(5);
  expect(all("s")).toEqual(["e1", "e1"]);
});

test("a router counts what has reached it, and its own at once", () => {
  const { time, views } = rig();
  const counts = (value: string) => views.map((view) => view.count(value));
  for (const key of ["s", "t"]) views[0]!.set(key, "e0", 1_000);
  views[1]!.set("u", "e0", 1_000);
  expect(counts("e0")).toEqual([2, 1]);
  time.advance(20);
  expect(counts("e0")).toEqual([3, 3]);
  views[1]!.set("s", "e1", 2_000);
  views[1]!.forget("t");
  expect([counts("e0"), counts("e1")]).toEqual([
    [3, 1],
    [0, 1],
  ]);
  time.advance(20);
  expect([counts("e0"), counts("e1")]).toEqual([
    [1, 1],
    [1, 1],
  ]);
  time.advance(1_000);
  expect([counts("e0"), counts("e1")]).toEqual([
    [0, 0],
    [1, 1],
  ]);
});

test("at the same moment too", () => {
  const { time, views, all } = rig();
  views[1]!.set("s", "e1", 1_000);
  views[0]!.set("s", "e0", 1_000);
  time.advance(20);
  expect(all("s")).toEqual(["e0", "e0"]);
});

test("one past the capacity, what arrived the longest ago goes", () => {
  const { time, views, all } = rig(2, 2);
  for (const key of ["a", "b", "a", "c"]) {
    views[0]!.set(key, key, 1_000);
    time.advance(1);
  }
  time.advance(20);
  expect(["a", "b", "c"].map((key) => all(key)[1])).toEqual(["a", undefined, "c"]);
});

test("a router that is started again knows what it has told, and all agree in the end", () => {
  const { channel, time, views } = rig();
  views[0]!.set("s", "e0", 1_000);
  const again = channel.seenBy(0);
  expect(again.get("s")).toBe("e0");
  time.advance(20);
  expect([again, ...views].map((view) => view.get("s"))).toEqual(["e0", "e0", "e0"]);
});

test.each([1, 2, 3])("any history ends with the last word on each session, seed %d", (seed) => {
  const random = createSeededRandom(seed);
  const { time, views, all } = rig(4);
  const last = new Map<string, string>();
  for (let step = 0; step < 400; step++) {
    time.advance(random.integer(8));
    const key = `s${random.integer(9)}`;
    const value = `e${step}`;
    const router = random.integer(4);
    views[router]!.set(key, value, 60_000);
    last.set(key, value);
    expect(views[router]!.get(key)).toBe(value);
  }
  time.advance(20);
  for (const [key, value] of last) expect(all(key)).toEqual([value, value, value, value]);
});
