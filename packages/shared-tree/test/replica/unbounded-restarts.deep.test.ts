import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { chainOf, createNode, join, store } from "./replica-pair.ts";

const tickMs = 15;
/** In place of 16,384. */
const maxFeeds = 64;

// Symptom: after 16,384 declarations of feeds, one for each restart of an engine and each change of its reader, owner and
// peers held nothing of engines that were started from then on, and called the caches of the dead ones complete.
// Mechanism: the fold had a table of feed numbers of its own from which nothing was taken when the journal gave a feed up;
// beyond its bound it took no declaration, so that the epoch before stayed the newest.
test("an engine that restarts more often than a journal may have feeds is known in every epoch", () => {
  const time = createVirtualTime();
  const journalLimits = { maxFeeds };
  const [owner, peer] = [createNode("a", time, { journalLimits }), createNode("b", time, { journalLimits })];
  join([owner, peer]);
  const reader = owner.replica.openFeed("engine", () => {});
  reader.setQuality("complete", "live", "complete", null);
  reader.setRole("owner");
  const chain = chainOf(1, 2);
  for (let epoch = 0; epoch < 8 * maxFeeds + 8; epoch++) {
    reader.newEpoch();
    store(reader, 0, chain, epoch);
    if (epoch % 16 === 0) time.advance(tickMs);
  }
  const last = chainOf(2, 3);
  store(reader, 1, last, 8 * maxFeeds + 7);
  time.advance(tickMs);
  for (const node of [owner, peer]) {
    expect(node.replica.fold.state("engine")).toMatchObject({ isComplete: true, last: { sequence: 1 } });
    expect(node.heldBlocks("engine", last)).toBe(3);
    expect(node.index.factCount).toBe(5);
    expect(node.replica.feeds.qualityOf("engine")).toBe("complete");
  }
  expect([...owner.replica.store.own.feeds()].length).toBeLessThan(8);
});

// Symptom: a router that only places prompts at an engine that others read could place nothing any more, at any engine,
// once engines had restarted 16,384 times. Mechanism: the number under which it places is another one for each epoch, and
// only who reads the events gave numbers of past epochs up.
test("a router that places prompts keeps no numbers of epochs that are over", () => {
  const time = createVirtualTime();
  const [owner, other] = [createNode("a", time), createNode("b", time)];
  join([owner, other]);
  const reader = owner.replica.openFeed("engine", () => {});
  reader.setQuality("complete", "live", "complete", null);
  reader.setRole("owner");
  const use = { ttlMs: 100, isConfirmed: false };
  for (let epoch = 0; epoch < 50; epoch++) {
    reader.newEpoch();
    store(reader, 0, chainOf(1, 2), epoch);
    time.advance(tickMs);
    for (const { replica } of [owner, other]) replica.placements.place("engine", chainOf(epoch + 2, 2), 2, use);
    time.advance(2 * use.ttlMs);
  }
  for (const { replica } of [owner, other]) expect([...replica.store.own.feeds()].length).toBeLessThan(8);
  const chain = chainOf(100, 4);
  other.replica.placements.place("engine", chain, 4, use);
  time.advance(tickMs);
  expect(owner.placedBlocks("engine", chain)).toBe(4);
});
