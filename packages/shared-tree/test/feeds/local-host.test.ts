import { asTargetIndex } from "@espalier/core";
import { createPrefixIndex, tier } from "@espalier/prefix-index";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createLocalHost, createLocalOutput, type FeedTarget } from "../../src/feeds/feed-host.ts";
import { chainOf, connectMs, ScriptedEngine } from "../tier/scripted-engine.ts";

function rig() {
  const time = createVirtualTime();
  const index = createPrefixIndex({ maxTargets: 4, maxBlocks: 1_000, maxSets: 10 });
  const opened: FeedTarget[] = [];
  const host = createLocalHost((target) => {
    opened.push(target);
    const forget = (number: number): void => index.forgetTarget(number);
    return createLocalOutput({ index, forget, forgetPlacements: () => {} }, target.index);
  });
  return { time, index, host, opened, engine: new ScriptedEngine("engine-a", time.scheduler) };
}

test("every feed is read from the moment at which it is opened, into the index of this router", () => {
  const { time, index, host, opened, engine } = rig();
  const target = { index: asTargetIndex(2), key: "engine-a" };
  engine.store(chainOf(1, 3));
  const feed = host.open(target, engine.readBy("r1"));
  expect([opened, engine.readers, feed.quality]).toEqual([[target], ["r1"], "void"]);
  time.advance(connectMs);
  expect([feed.quality, index.factBlockCount(2, tier.gpu)]).toEqual(["complete", 3]);
  engine.store(chainOf(2, 2));
  expect(index.factBlockCount(2, tier.gpu)).toBe(5);
  feed.attach();
  expect(feed.describe()).toMatchObject({ target: "engine-a", role: null, owner: null, floatingBlocks: 1 });
});

test("what an engine held in its epoch before is forgotten", () => {
  const { time, index, host, engine } = rig();
  host.open({ index: asTargetIndex(2), key: "engine-a" }, engine.readBy("r1"));
  time.advance(connectMs);
  engine.store(chainOf(1, 3));
  engine.restart();
  expect(index.factBlockCount(2, tier.gpu)).toBe(0);
  engine.store(chainOf(2, 1));
  expect(index.factBlockCount(2, tier.gpu)).toBe(1);
});

test("a feed that is stopped is read no more", async () => {
  const { time, index, host, engine } = rig();
  const feed = host.open({ index: asTargetIndex(2), key: "engine-a" }, engine.readBy("r1"));
  time.advance(connectMs);
  await feed.stop();
  engine.store(chainOf(1, 3));
  expect([engine.readers, index.factBlockCount(2, tier.gpu)]).toEqual([[], 0]);
});
