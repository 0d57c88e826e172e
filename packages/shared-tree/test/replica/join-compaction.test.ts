import { asRouterId } from "@espalier/core";
import type { Member } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { compactionMs, createJoinCompaction, minCompactionOps } from "../../src/replica/replica.ts";
import { chainOf, createNode, join, store, tellMembers } from "./replica-pair.ts";

const member = (router: string, epoch = 1, state: Member["state"] = "alive"): Member => ({
  origin: { router: asRouterId(router), epoch },
  state,
  isDraining: false,
  isLinked: true,
  unreachable: [],
});

function rig() {
  const time = createVirtualTime();
  let touches = 0;
  const compaction = createJoinCompaction(time.clock, () => {
    touches++;
  });
  return { time, compaction, touches: () => touches };
}

test("for half a second after somebody came, feeds with changes are due for a checkpoint", () => {
  const { time, compaction, touches } = rig();
  expect(compaction.isCheckpointWanted(1_000_000)).toBe(false);
  compaction.setMembers([member("b")]);
  expect([
    compaction.isCheckpointWanted(minCompactionOps),
    compaction.isCheckpointWanted(minCompactionOps - 1),
    touches(),
  ]).toEqual([true, false, 1]);
  time.advance(compactionMs - 1);
  expect(compaction.isCheckpointWanted(minCompactionOps)).toBe(true);
  time.advance(1);
  expect(compaction.isCheckpointWanted(minCompactionOps)).toBe(false);
});

test.each<[string, readonly Member[], number]>([
  ["the same members again", [member("b")], 1],
  ["one that left", [], 1],
  ["one that is down", [member("b", 1, "down")], 1],
  ["another one", [member("b"), member("c")], 2],
  ["a later epoch of the same router", [member("b", 2)], 2],
])("after a member, %s", (_, then, touched) => {
  const { compaction, touches } = rig();
  compaction.setMembers([member("b")]);
  compaction.setMembers(then);
  expect(touches()).toBe(touched);
});

test("an owner's journal is short by the time that a router that has just come asks for it", () => {
  const time = createVirtualTime();
  const nodes = [createNode("a", time), createNode("b", time), createNode("c", time)] as const;
  const [a, b, c] = nodes;
  join([a, b]);
  const reader = a.replica.openFeed("engine", () => {});
  reader.setQuality("complete", "live", "complete", null);
  reader.setRole("owner");
  const chains = Array.from({ length: 40 }, (_, seed) => chainOf(seed, 32));
  for (const [sequence, chain] of chains.entries()) {
    store(reader, sequence, chain);
    time.advance(20);
  }
  const before = a.replica.store.stats().ownBytes;
  tellMembers([a, b, c], [a, b, c]);
  time.advance(50);
  expect(a.replica.store.stats().ownBytes).toBeLessThan(before / 4);
  expect(b.replica.fold.statement("engine")).toEqual(a.replica.fold.statement("engine"));
  for (const chain of chains) expect(b.heldBlocks("engine", chain)).toBe(32);
});
