import { createSeededRandom } from "@espalier/core";
import type { Member } from "@espalier/mesh";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { maxDeadJournals } from "../../src/replica/dead-journals.ts";
import { journalContent } from "../documents/journal-content.ts";
import { chainOf, createNode, join, type Node, store } from "./replica-pair.ts";

const nobodyToAsk = (): void => {};
const busy = {
  inFlight: 2,
  pendingPrefillTokens: 100,
  decodeTokens: 50,
  pendingWorkMs: 9,
  activeTokens: 40,
  lendingTokens: 60,
  yieldingInFlight: 60,
  answers: 70,
};
const idle = {
  inFlight: 0,
  pendingPrefillTokens: 0,
  decodeTokens: 0,
  pendingWorkMs: 0,
  activeTokens: 0,
  lendingTokens: 0,
  yieldingInFlight: 0,
  answers: 0,
};

/** What one epoch of a router tells another router: everything it has written, and its frames of load. */
function tell(from: Node, to: Node): void {
  from.replica.ports.documents.onUpdate((update, isOwn) => {
    if (isOwn) to.replica.ports.documents.apply(update);
  });
  from.replica.ports.load.onFrame((frame) => to.replica.ports.load.receive(frame));
}

const alive = ({ replica }: Node): Member => ({
  ...{ origin: replica.ports.origin, state: "alive", isDraining: false, isLinked: true, unreachable: [] },
});

/** One epoch of router `b`: it reads a message of the engine, places a chain, has a request in flight, and crashes. */
function liveOnce(a: Node, time: VirtualTime, epoch: number): void {
  const b = createNode("b", time, { maxTargets: 8, maxBlocks: 256 });
  tell(b, a);
  a.replica.setMembers([alive(b)]);
  const reader = b.replica.openFeed(`t${epoch % 3}`, nobodyToAsk);
  reader.setQuality("complete", "live", "complete", null);
  reader.setRole("owner");
  store(reader, epoch, chainOf(epoch, 2));
  b.replica.placements.place("engine", chainOf(epoch + 5_000, 2), 2, { ttlMs: 10_000, isConfirmed: false });
  b.replica.bindings.set(`resp${epoch % 10}`, "engine", 10_000);
  b.replica.load.set("engine", busy);
  time.advance(20);
  expect(a.replica.load.shared.inFlight[a.slots.find("engine")]).toBe(2);
  void b.replica.stop();
  if (epoch % 2 === 0) a.replica.ports.load.originGone(b.replica.ports.origin);
  a.replica.setMembers([]);
}

test("a hundred and more restarts of a router leave a few of its journals, its claims and no load", () => {
  const time = createVirtualTime();
  const a = createNode("a", time);
  a.slots.slotOf("engine");
  void a.replica.start();
  let largestBytes = 0;
  for (let epoch = 0; epoch < 130; epoch++) {
    liveOnce(a, time, epoch);
    const { documents, byteLength } = a.replica.describe().journals;
    expect(documents).toBeLessThanOrEqual(maxDeadJournals + 2);
    if (epoch === 80) largestBytes = byteLength;
    if (epoch > 80) expect(byteLength).toBeLessThan(1.5 * largestBytes);
    time.advance(100);
  }
  time.advance(2_000);
  const { journals, targets, load } = a.replica.describe();
  expect(targets.map(({ target }) => target).sort()).toEqual(["t0", "t1", "t2"]);
  expect(load.length).toBeLessThanOrEqual(1);
  expect([...a.replica.load.shared.inFlight].every((inFlight) => inFlight === 0)).toBe(true);
  expect(a.replica.feeds.claimsOf("t0").length).toBeLessThanOrEqual(journals.documents);
  expect(a.replica.bindings.size).toBe(10);
});

test("ten minutes of three busy routers leaves nothing that grows, and all say the same in the end", () => {
  const time = createVirtualTime();
  const random = createSeededRandom(12);
  const nodes = ["a", "b", "c"].map((name) => createNode(name, time));
  join(nodes);
  const readers = nodes.map(({ replica, slots }, at) => {
    void replica.start();
    for (let target = 0; target < 3; target++) slots.slotOf(`t${target}`);
    const reader = replica.openFeed(`t${at}`, nobodyToAsk);
    reader.setQuality("complete", "live", "complete", null);
    reader.setRole("owner");
    return reader;
  });
  const sizes: number[][] = [];
  for (let second = 0; second < 600; second++) {
    const at = random.integer(3);
    const { replica } = nodes[at]!;
    store(readers[at]!, second, chainOf(second % 50, 4));
    replica.placements.place(`t${random.integer(3)}`, chainOf(100 + random.integer(40), 6), 6, {
      ...{ ttlMs: 30_000, isConfirmed: random.integer(4) === 0 },
    });
    replica.load.set(`t${random.integer(3)}`, random.integer(2) === 0 ? busy : idle);
    replica.bindings.set(`resp${random.integer(30)}`, `t${at}`, 60_000);
    time.advance(1_000);
    if (second % 100 === 99) sizes.push(nodes.map((node) => node.replica.describe().journals.byteLength));
  }
  for (const bytes of sizes.slice(2)) {
    for (const [at, byteLength] of bytes.entries()) expect(byteLength).toBeLessThan(2 * sizes[1]![at]!);
  }
  for (const { replica } of nodes) {
    for (let target = 0; target < 3; target++) replica.load.set(`t${target}`, idle);
  }
  time.advance(2_000);
  const [first, ...others] = nodes as [Node, ...Node[]];
  for (const { replica, slots } of nodes) {
    for (let target = 0; target < 3; target++) {
      const slot = slots.find(`t${target}`);
      const { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs, activeTokens, lendingTokens } =
        replica.load.shared;
      for (const column of [inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs, activeTokens, lendingTokens]) {
        expect(column[slot]).toBe(0);
      }
    }
    expect(replica.fold.byteLength).toBeLessThan(100_000);
    expect(replica.bindings.size).toBe(30);
  }
  for (const { replica } of others) {
    for (let target = 0; target < 3; target++) {
      expect(replica.fold.statement(`t${target}`)).toEqual(first.replica.fold.statement(`t${target}`));
      expect(replica.feeds.claimOf(`t${target}`)).toEqual(first.replica.feeds.claimOf(`t${target}`));
      expect(replica.feeds.qualityOf(`t${target}`)).toBe("complete");
    }
    for (const { name } of replica.ports.documents.list()) {
      expect(journalContent(replica.store, name)).toEqual(journalContent(first.replica.store, name));
    }
    for (let key = 0; key < 30; key++)
      expect(replica.bindings.get(`resp${key}`)).toBe(first.replica.bindings.get(`resp${key}`));
  }
});
