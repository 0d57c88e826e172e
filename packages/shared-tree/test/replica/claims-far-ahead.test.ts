import { asRouterId } from "@espalier/core";
import { stampsPerMs } from "@espalier/mesh";
import { createCountingMeter, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { claimOf } from "../documents/journal-fixtures.ts";
import { createNode, join, type Node } from "./replica-pair.ts";

const refusedMetric = "espalier_feed_claims_refused_total";
/** Until then stamps are whole numbers that rise by one. */
const endOfStamps = Number.MAX_SAFE_INTEGER;

function claim({ replica }: Node, stamp: number): void {
  replica.store.own.claim(claimOf("engine", stamp));
  replica.store.own.commit();
}

function pairBeside(author: string) {
  const time = createVirtualTime();
  const meter = createCountingMeter();
  const [a, b] = [createNode("a", time, { meter }), createNode("b", time, { meter })];
  const other = createNode(author, time);
  join([a, b, other]);
  const reader = a.replica.openFeed("engine", () => {});
  reader.setQuality("complete", "live", "complete", null);
  return { time, meter, nodes: [a, b], reader, other };
}

const holderOf = ({ replica }: Node) => replica.feeds.claimOf("engine")?.origin.router;

// Symptom: one claim at 2^53 and nobody else ever read the feed of that engine again while its author's journal was kept, its
// author dead or alive. Mechanism: the only demand on a stamp was to be finite, and 2^53 + 1 is 2^53: no claim is later.
test.each([endOfStamps, 2 ** 53, 2 ** 60, Number.MAX_VALUE])("a claim at %d is none, and is counted", (stamp) => {
  const { time, meter, nodes, reader, other } = pairBeside("0");
  claim(other, stamp);
  expect(nodes.map(holderOf)).toEqual([undefined, undefined]);
  expect(meter.value(refusedMetric)).toBe(nodes.length);
  reader.setRole("owner");
  time.advance(20);
  expect(nodes.map(holderOf)).toEqual([asRouterId("a"), asRouterId("a")]);
});

test("the latest claim that counts leaves room for later ones, one past it does not count", () => {
  const { time, nodes, reader, other } = pairBeside("0");
  const latest = Math.floor((time.clock.wallMs() * stampsPerMs + endOfStamps) / 2);
  claim(other, latest);
  expect(nodes.map(holderOf)).toEqual([asRouterId("0"), asRouterId("0")]);
  claim(other, latest + 1);
  expect(nodes.map(holderOf)).toEqual([undefined, undefined]);
  claim(other, latest);
  time.advance(1);
  reader.setRole("owner");
  time.advance(20);
  expect(nodes.map(holderOf)).toEqual([asRouterId("a"), asRouterId("a")]);
});

test("a router whose clock is years ahead is heard, and one that has no clock hears the others", () => {
  const { time, nodes, other } = pairBeside("z");
  const years = 20 * 365 * 86_400_000;
  claim(other, (time.clock.wallMs() + years) * stampsPerMs);
  expect(nodes.map(holderOf)).toEqual([asRouterId("z"), asRouterId("z")]);
  const unset = { ...time, clock: { ...time.clock, wallMs: () => time.clock.nowMs() } };
  const [late, set] = [createNode("late", unset), createNode("set", time)];
  join([late, set]);
  claim(set, time.clock.wallMs() * stampsPerMs);
  expect(holderOf(late)).toBe(asRouterId("set"));
});
