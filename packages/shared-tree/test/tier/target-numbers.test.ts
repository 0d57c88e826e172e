import { promptOf, tokensOf } from "@espalier/testing";
import { afterEach, beforeEach, expect, test } from "vitest";
import { tombstoneMs } from "../../src/replica/tombstones.ts";
import { TierCluster, type TierRouter } from "./tier-rig.ts";

// Symptom: where no events are shared, routers knew nothing any more of engines that came after 4,096 others had come and
// gone: neither guesses nor the load of others. Mechanism: whatever a peer said of an engine took a number for it, also when it
// came late, of one that was forgotten; and numbers were only looked for among targets with facts to be given back.

let cluster: TierCluster;
let one: TierRouter;
let other: TierRouter;

beforeEach(async () => {
  cluster = new TierCluster();
  [one, other] = [cluster.add("a"), cluster.add("b")];
  for (const { tier } of [one, other]) await tier.start();
  cluster.time.advance(2_000);
});

afterEach(async () => {
  for (const { tier } of [one, other]) await tier.stop();
});

const gauge = {
  inFlight: 3,
  pendingPrefillTokens: 5,
  decodeTokens: 0,
  pendingWorkMs: 0,
  activeTokens: 0,
  lendingTokens: 0,
  yieldingInFlight: 0,
  answers: 0,
};
const ttlMs = 100_000;
const join = (router: TierRouter, key: string): void => {
  router.fleet.add(key);
  router.indexOf(key);
};
const leave = (router: TierRouter, key: string): void => {
  router.fleet.delete(key);
  router.tier.replica.forgetTarget(key);
};

test("what a peer says late of an engine that has left here takes no number", () => {
  for (const router of [one, other]) join(router, "gone");
  leave(other, "gone");
  one.tier.placements.place(one.indexOf("gone"), promptOf(tokensOf("a", 96)), ttlMs);
  one.tier.replica.load.set("gone", gauge);
  cluster.time.advance(1_000);
  expect(other.slots.find("gone")).toBe(-1);
  expect(other.tier.replica.describe().load).toMatchObject([{ router: "a", targets: 1, inFlight: 3 }]);
  // It comes back: what others have there counts at once, before they say it again.
  join(other, "gone");
  expect(other.tier.load.inFlight[other.slots.find("gone")]).toBe(3);
});

test("a guess about an engine that has just left writes of no engine without a name", () => {
  join(one, "gone");
  const number = one.indexOf("gone");
  leave(one, "gone");
  one.tier.placements.place(number, promptOf(tokensOf("a", 96)), ttlMs);
  one.tier.placements.confirm(number, promptOf(tokensOf("a", 96)), ttlMs);
  one.tier.placements.refute(number, promptOf(tokensOf("a", 96)), 1);
  cluster.time.advance(1_000);
  expect([...one.tier.replica.store.own.feeds()]).toEqual([]);
  expect([one.slots.find(""), other.slots.find("")]).toEqual([-1, -1]);
});

test("more engines than there are numbers for come and go, late words about them included, and the next ones are known", () => {
  for (let at = 0; at < 3 * one.slots.capacity; at++) {
    const key = `engine-${at}`;
    for (const router of [one, other]) join(router, key);
    one.tier.placements.place(one.indexOf(key), promptOf(tokensOf("a", 96)), ttlMs);
    cluster.time.advance(50);
    leave(other, key);
    one.tier.placements.place(one.indexOf(key), promptOf(tokensOf("b", 96)), ttlMs);
    one.tier.replica.load.set(key, gauge);
    cluster.time.advance(50);
    one.tier.replica.load.set(key, { ...gauge, inFlight: 0, pendingPrefillTokens: 0 });
    leave(one, key);
  }
  for (const router of [one, other]) join(router, "last");
  for (const { slots } of [one, other]) expect(slots.find("last")).toBeGreaterThanOrEqual(0);
  const prompt = promptOf(tokensOf("a", 96));
  one.tier.placements.place(one.indexOf("last"), prompt, ttlMs);
  one.tier.replica.load.set("last", gauge);
  cluster.until(() => other.placed("last", prompt.chain) === 6);
  cluster.until(() => other.tier.load.inFlight[other.slots.find("last")] === 3);
});

test("a number that something else left behind is looked for like those with facts", () => {
  join(one, "kept");
  one.indexOf("left behind");
  one.tier.replica.placements.place("declared", promptOf(tokensOf("a", 96)).chain, 6, { ttlMs, isConfirmed: false });
  expect(one.slots.find("declared")).toBe(-1);
  cluster.time.advance(tombstoneMs + 21_000);
  expect([one.slots.find("left behind"), one.slots.find("kept")]).toEqual([-1, 0]);
  for (let round = 0; round < 3; round++) {
    cluster.time.advance(ttlMs + 1_000);
    one.tier.replica.placements.place("kept", promptOf(tokensOf("b", 96)).chain, 6, { ttlMs, isConfirmed: false });
  }
  cluster.time.advance(1_000);
  const targets = Array.from(one.tier.replica.store.own.feeds(), ({ declaration }) => declaration.target);
  expect(targets).toEqual(["kept"]);
});
