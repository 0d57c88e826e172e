import { DocumentFullError } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { chainOf, createNode, join, type Node, store, tellMembers } from "./replica-pair.ts";

const chains = Array.from({ length: 60 }, (_, seed) => chainOf(seed, 32));
const maxHeldBytes = 6_000;

/** Gives a router what it lacks of another one's journal, as a link does when it is new. */
function carry(from: Node, to: Node): void {
  const { name } = from.replica.store.own;
  const { store: journals } = to.replica;
  for (const update of from.replica.store.diff(name, journals.stateVector(name), 1_000_000)) journals.apply(update);
}

/** A router that reads an engine, and one that has followed it all along. */
function rig(maxHeldBytes: number) {
  const time = createVirtualTime();
  const a = createNode("a", time, { journalLimits: { maxHeldBytes, maxOwnBytes: 1_000_000 } });
  const b = createNode("b", time);
  join([a, b]);
  const reader = a.replica.openFeed("engine", () => {});
  reader.setQuality("complete", "live", "complete", null);
  reader.setRole("owner");
  const publish = (from: number, to: number): void => {
    for (const [at, chain] of chains.slice(from, to).entries()) {
      store(reader, from + at, chain);
      time.advance(20);
    }
  };
  return { time, a, b, publish };
}

/** All of it, and known to be all. */
function expectWhole(node: Node, like: Node, count: number): void {
  for (const chain of chains.slice(0, count)) expect(node.heldBlocks("engine", chain)).toBe(32);
  expect(node.replica.fold.state("engine")).toMatchObject({ isComplete: true, progress: "current" });
  expect(node.replica.fold.statement("engine")).toEqual(like.replica.fold.statement("engine"));
}

// A journal that held more than another router keeps of one broke their link, for ever. It is bounded by its writer, whose
// oldest facts go: a router that comes after that finds a journal without its beginning.
test("a router that comes after a journal has dropped its oldest facts fetches the state, and follows from there", () => {
  const { time, a, b, publish } = rig(maxHeldBytes);
  publish(0, 50);
  expect(a.replica.store.stats().ownBytes).toBeLessThanOrEqual(maxHeldBytes);
  expectWhole(b, a, 50);
  const joiner = createNode("c", time, { journalLimits: { maxDocumentBytes: 2 * maxHeldBytes } });
  carry(a, joiner);
  expect(joiner.heldBlocks("engine", chains[0]!), "what was dropped is not in the journal").toBe(0);
  join([a, joiner]);
  time.advance(5_000);
  expectWhole(joiner, a, 50);
  publish(50, 60);
  for (const node of [b, joiner]) expectWhole(node, a, 60);
});

test("a journal that found no room is taken as a whole once its writer has a checkpoint", () => {
  const { time, a, b, publish } = rig(1_000_000);
  publish(0, 50);
  const joiner = createNode("c", time, { journalLimits: { maxDocumentBytes: 3_000 } });
  expect(() => carry(a, joiner)).toThrow(DocumentFullError);
  expect(joiner.replica.fold.state("engine")).toBeUndefined();
  tellMembers([a, b, joiner], [a, b, joiner]);
  time.advance(50);
  expect(a.replica.store.stats().ownBytes).toBeLessThan(2_000);
  carry(a, joiner);
  join([a, joiner]);
  time.advance(5_000);
  expectWhole(joiner, a, 50);
  publish(50, 52);
  for (const node of [b, joiner]) expectWhole(node, a, 52);
});
