import { createPrefixMatches } from "@espalier/prefix-index";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { maxPlacementItemBytes } from "../../src/documents/own-journal.ts";
import { maxRunBlocks } from "../../src/placements/placement-item.ts";
import { chainOf, createNode, join, type Node, store } from "../replica/replica-pair.ts";

const nobodyToAsk = (): void => {};
const minute = { ttlMs: 60_000, isConfirmed: false };

function nodesOf(names: readonly string[], time: VirtualTime): Node[] {
  const nodes = names.map((name) => nodeOf(name, time));
  join(nodes);
  return nodes;
}

/** A router whose fleet has the engines of these tests. */
function nodeOf(name: string, time: VirtualTime): Node {
  const node = createNode(name, time);
  for (const target of ["x", "y"]) node.slots.slotOf(target);
  return node;
}

/** Brings a replica what others' journals hold, as a mesh does when it comes. */
function catchUp(from: Node, to: Node, maxBytes = 4_096): void {
  const { documents } = from.replica.ports;
  for (const { name, origin } of documents.list()) {
    if (!origin) continue;
    for (const piece of documents.diff(name, to.replica.ports.documents.stateVector(name), maxBytes)) {
      to.replica.ports.documents.apply(piece);
    }
  }
}

/** Every node says the same of a chain at a target. */
function expectPlaced(nodes: readonly Node[], target: string, chain: Uint32Array, blocks: number): void {
  expect(nodes.map((node) => node.placedBlocks(target, chain))).toEqual(nodes.map(() => blocks));
}

describe("placements through the journals", () => {
  test("reach every router, those of each by itself", () => {
    const time = createVirtualTime();
    const nodes = nodesOf(["a", "b", "c"], time);
    const chains = nodes.map((_node, seed) => chainOf(seed + 1, 6 + seed));
    for (const [at, { replica }] of nodes.entries()) replica.placements.place("x", chains[at]!, 6 + at, minute);
    time.advance(20);
    for (const [at, chain] of chains.entries()) expectPlaced(nodes, "x", chain, 6 + at);
    for (const chain of chains) expectPlaced(nodes, "y", chain, 0);
  });

  test("every router knows by whom a chain was sent there last", () => {
    const time = createVirtualTime();
    const nodes = nodesOf(["a", "b", "c"], time);
    const chain = chainOf(1, 10);
    const matches = createPrefixMatches(nodes[0]!.slots.capacity);
    const placers = (): (string | undefined)[] =>
      nodes.map(({ replica, index, slots }) => {
        index.match(chain, 10, time.clock.nowMs(), matches);
        return replica.placements.routerOf(matches.placedBy[slots.slotOf("x")]!);
      });
    nodes[0]!.replica.placements.place("x", chain, 10, minute);
    time.advance(20);
    expect(placers()).toEqual(["a", "a", "a"]);
    nodes[2]!.replica.placements.place("x", chain, 10, minute);
    time.advance(20);
    expect(placers()).toEqual(["c", "c", "c"]);
    expect(nodes[0]!.replica.placements.routerOf(77)).toBeUndefined();
  });

  test("one that joins late has them all, and they expire for it too", () => {
    const time = createVirtualTime();
    const [a, b] = nodesOf(["a", "b"], time) as [Node, Node];
    const chain = chainOf(1, 40);
    for (let blocks = 5; blocks <= 40; blocks += 5) {
      a.replica.placements.place("x", chain, blocks, minute);
      time.advance(20);
    }
    const late = nodeOf("late", time);
    catchUp(b, late, 1);
    expectPlaced([a, b, late], "x", chain, 40);
    time.advance(60_001);
    expectPlaced([a, b, late], "x", chain, 0);
  });

  test("a refutation by one router cuts what another has placed, everywhere", () => {
    const time = createVirtualTime();
    const nodes = nodesOf(["a", "b", "c"], time);
    const chain = chainOf(1, 10);
    nodes[0]!.replica.placements.place("x", chain, 10, minute);
    nodes[0]!.replica.placements.place("y", chain, 10, minute);
    time.advance(20);
    nodes[1]!.replica.placements.refute("x", chain, { from: 4, blockCount: 10 });
    time.advance(20);
    expectPlaced(nodes, "x", chain, 4);
    expectPlaced(nodes, "y", chain, 10);
  });

  test("of an engine that has begun another epoch they are nobody's any more", () => {
    const time = createVirtualTime();
    const nodes = nodesOf(["a", "b"], time);
    const reader = nodes[0]!.replica.openFeed("x", nobodyToAsk);
    reader.setQuality("complete", "live", "complete", null);
    reader.setRole("owner");
    store(reader, 0, chainOf(9, 2));
    time.advance(20);
    const chain = chainOf(1, 5);
    nodes[1]!.replica.placements.place("x", chain, 5, minute);
    time.advance(20);
    expectPlaced(nodes, "x", chain, 5);
    const late = nodeOf("late", time);
    catchUp(nodes[0]!, late);
    expect(late.placedBlocks("x", chain)).toBe(5);
  });

  // Symptom: the longest chain that may be placed made the commit fail, with all that was to be committed along with it.
  // Mechanism: the journal took items of just the bytes of its blocks, and an item says a little more than its blocks.
  test("a chain of as many blocks as one may have goes through, and nothing that is committed with it is lost", () => {
    const time = createVirtualTime();
    const nodes = nodesOf(["a", "b"], time);
    const chain = chainOf(1, maxRunBlocks);
    const short = chainOf(2, 3);
    expect(chain.byteLength).toBeLessThan(maxPlacementItemBytes);
    nodes[0]!.replica.placements.place("x", chain, maxRunBlocks, minute);
    nodes[0]!.replica.placements.place("y", short, 3, minute);
    time.advance(20);
    expectPlaced(nodes, "y", short, 3);
    expectPlaced([nodes[1]!], "x", chain.subarray(0, 2_000), 1_000);
  });

  test("of a longer chain others have what a record can say", () => {
    const time = createVirtualTime();
    const nodes = nodesOf(["a", "b"], time);
    const chain = chainOf(1, maxRunBlocks + 1);
    nodes[0]!.replica.placements.place("x", chain, maxRunBlocks + 1, minute);
    expect(() => time.advance(20)).not.toThrow();
    expectPlaced([nodes[1]!], "x", chain.subarray(0, 2_000), 1_000);
  });

  test("what a router in a later epoch places is its new journal's, whole", () => {
    const time = createVirtualTime();
    const [a, b, c] = nodesOf(["a", "b", "c"], time) as [Node, Node, Node];
    const chain = chainOf(1, 12);
    a.replica.placements.place("x", chain, 8, minute);
    time.advance(20);
    a.replica.ports.renewEpoch(a.replica.ports.origin.epoch + 5);
    a.replica.placements.place("x", chain, 12, minute);
    time.advance(20);
    expectPlaced([a, b, c], "x", chain, 12);
    const late = nodeOf("late", time);
    for (const piece of a.replica.ports.documents.diff(a.replica.store.own.name, Uint8Array.of(0), 4_096)) {
      late.replica.ports.documents.apply(piece);
    }
    expect(late.placedBlocks("x", chain)).toBe(12);
  });
});

describe("bindings", () => {
  const everywhere = (nodes: readonly Node[], key: string) => nodes.map(({ replica }) => replica.bindings.get(key));

  test("set by all routers within one tick end as the same one everywhere, the greatest router's of equal stamps", () => {
    const time = createVirtualTime();
    const nodes = nodesOf(["b", "c", "a"], time);
    for (const { replica } of nodes) replica.bindings.set("resp", `of ${replica.ports.origin.router}`, 60_000);
    expect(everywhere(nodes, "resp")).toEqual(["of b", "of c", "of a"]);
    time.advance(20);
    expect(everywhere(nodes, "resp")).toEqual(["of c", "of c", "of c"]);
  });

  test("of a set and a forgetting at the same time the later one holds, whoever hears of it first", () => {
    const time = createVirtualTime();
    const nodes = nodesOf(["a", "b", "c"], time);
    nodes[0]!.replica.bindings.set("resp", "first", 60_000);
    time.advance(20);
    nodes[1]!.replica.bindings.set("resp", "second", 60_000);
    time.advance(1);
    nodes[2]!.replica.bindings.forget("resp");
    time.advance(40);
    expect(everywhere(nodes, "resp")).toEqual([undefined, undefined, undefined]);
    nodes[0]!.replica.bindings.set("resp", "third", 60_000);
    time.advance(20);
    expect(everywhere(nodes, "resp")).toEqual(["third", "third", "third"]);
  });

  test("are in the journal for those who join, the last word on each key only", () => {
    const time = createVirtualTime();
    const [a, b] = nodesOf(["a", "b"], time) as [Node, Node];
    for (let round = 0; round < 5; round++) {
      for (let key = 0; key < 4; key++) a.replica.bindings.set(`k${key}`, `v${round}`, 60_000);
      time.advance(20);
    }
    b.replica.bindings.forget("k3");
    time.advance(20);
    const late = nodeOf("late", time);
    catchUp(b, late, 1);
    expect(["k0", "k1", "k2", "k3"].map((key) => late.replica.bindings.get(key))).toEqual([
      "v4",
      "v4",
      "v4",
      undefined,
    ]);
  });
});
