import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createLostRouters } from "../../src/mesh/fleet-watch.ts";

type State = "alive" | "suspect" | "down" | "left";
const members = (states: Readonly<Record<string, State>>) =>
  Object.entries(states).map(([router, state]) => ({ router, state, address: `${router}:1` }));
const namesOf = (lost: ReturnType<typeof createLostRouters>) => lost.list().map(({ router }) => router);

/** A dashboard opened after a router had died said "2 of 2", all green: members that are down are forgotten within two seconds. */
test("a router that was alive and is down, or is no member any more, is lost; one that said goodbye is not", () => {
  const lost = createLostRouters(createVirtualTime().clock);
  lost.update(members({ r1: "alive", r2: "alive", r3: "alive", r4: "alive", r5: "down" }));
  expect(namesOf(lost)).toEqual([]);
  lost.update(members({ r1: "down", r2: "left", r3: "suspect" }));
  expect(namesOf(lost)).toEqual(["r1", "r4"]);
  lost.update([]);
  expect(namesOf(lost)).toEqual(["r1", "r4", "r3"]);
});

test("one that comes back is lost no more, and may be lost again", () => {
  const lost = createLostRouters(createVirtualTime().clock);
  for (let epoch = 0; epoch < 2; epoch++) {
    lost.update(members({ r1: "alive" }));
    expect(namesOf(lost)).toEqual([]);
    lost.update([]);
    expect(namesOf(lost)).toEqual(["r1"]);
  }
});

test("64 are told of, for half an hour; the next one takes the place of the oldest", () => {
  const time = createVirtualTime();
  const lost = createLostRouters(time.clock);
  const lose = (router: string): void => {
    lost.update(members({ [router]: "alive" }));
    lost.update([]);
  };
  for (let router = 0; router < 65; router++) lose(`r${router}`);
  expect([lost.list().length, namesOf(lost).at(0), namesOf(lost).at(-1)]).toEqual([64, "r1", "r64"]);
  time.advance(1_799_999);
  lost.update([]);
  expect(namesOf(lost)).toHaveLength(64);
  lose("late");
  time.advance(1);
  lost.update([]);
  expect(namesOf(lost)).toEqual(["late"]);
});

test("with the address where it was reached last, and since when", () => {
  const { clock, advance } = createVirtualTime();
  const lost = createLostRouters(clock);
  lost.update(members({ r1: "alive" }));
  lost.update([{ router: "r1", state: "alive", address: "moved:1" }]);
  advance(5_000);
  lost.update([{ router: "r1", state: "down", address: null }]);
  const sinceMs = clock.wallMs();
  advance(5_000);
  lost.update([]);
  expect(lost.list()).toEqual([{ router: "r1", address: "moved:1", sinceMs }]);
});
