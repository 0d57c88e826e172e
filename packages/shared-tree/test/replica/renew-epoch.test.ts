import { originKey } from "@espalier/mesh";
import { tier } from "@espalier/prefix-index";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { chainOf, createNode, join, type Node, store, tellMembers } from "./replica-pair.ts";

/** By then a reader that has forgotten what it read knows that the engine's epoch is still the one that others know. */
const epochIsClearMs = 12_000;

/** A node that owns the engine's feed, and a ledger of the chains that the engine has stored. */
function ownerOf({ replica }: Node) {
  const ledger: Uint32Array[] = [];
  const reader = replica.openFeed("engine", (sink) => {
    for (const chain of ledger) sink.stored(tier.gpu, chain, 0, chain.length / 2);
  });
  reader.setQuality("complete", "live", "complete", null);
  reader.setRole("owner");
  return {
    reader,
    read(sequence: number, chain: Uint32Array): void {
      ledger.push(chain);
      store(reader, sequence, chain);
    },
  };
}

function setUp() {
  const time = createVirtualTime();
  const nodes = [createNode("a", time), createNode("b", time)] as const;
  join(nodes);
  for (const { replica } of nodes) void replica.start();
  return { time, nodes, a: nodes[0], b: nodes[1] };
}

test("a router whose later epoch others knew begins one later still, and says so everywhere", () => {
  const { a, b, time } = setUp();
  const before = a.replica.ports.origin;
  a.replica.ports.renewEpoch(before.epoch + 7);
  expect(a.replica.ports.origin.epoch).toBe(before.epoch + 8);
  expect(a.replica.describe().origin).toEqual(a.replica.ports.origin);
  a.replica.bindings.set("k", "v", 60_000);
  time.advance(20);
  expect(b.replica.store.origins().map(originKey)).toEqual([originKey(a.replica.ports.origin)]);
  expect(b.replica.ports.highestEpoch(before.router)).toBe(before.epoch + 8);
  time.advance(100_000);
  a.replica.ports.renewEpoch(a.replica.ports.origin.epoch);
  expect(a.replica.ports.origin.epoch).toBe(time.clock.wallMs());
});

test("nothing of the epoch before is taken of it again, and nothing more is said in it", () => {
  const { a, b, time } = setUp();
  const { replica } = a;
  replica.bindings.set("k", "old", 60_000);
  time.advance(20);
  const name = replica.store.own.name;
  const [update] = [...b.replica.ports.documents.diff(name, Uint8Array.of(0), 65_536)];
  replica.ports.renewEpoch(replica.ports.origin.epoch);
  expect(replica.ports.documents.apply(update!)).toBe("dropped");
  expect(replica.ports.documents.state(name)).toBeUndefined();
  const clock = b.replica.ports.documents.state(name)?.clock;
  replica.bindings.set("k", "new", 60_000);
  time.advance(2_000);
  expect(b.replica.ports.documents.state(name)?.clock).toBe(clock);
  expect(b.replica.bindings.get("k")).toBe("new");
});

test("its claims end with the epoch, until it is told again what to read", () => {
  const { a, b, time, nodes } = setUp();
  const { reader, read } = ownerOf(a);
  read(0, chainOf(1, 4));
  time.advance(20);
  expect(b.replica.feeds.qualityOf("engine")).toBe("complete");
  a.replica.ports.renewEpoch(a.replica.ports.origin.epoch);
  tellMembers(nodes, nodes);
  expect([reader.role, a.replica.feeds.claimOf("engine"), a.replica.ports.statements()]).toEqual([
    "none",
    undefined,
    [],
  ]);
  expect(b.replica.feeds.claimOf("engine")).toBeUndefined();
  reader.setRole("owner");
  read(1, chainOf(2, 4));
  time.advance(epochIsClearMs);
  for (const { replica } of nodes) expect(replica.feeds.claimOf("engine")?.origin).toEqual(a.replica.ports.origin);
  for (const node of nodes) for (const seed of [1, 2]) expect(node.heldBlocks("engine", chainOf(seed, 4))).toBe(4);
  expect(b.replica.fold.statement("engine")).toEqual(a.replica.fold.statement("engine"));
});

test("a reader that is told to read on in the moment in which its claim ends claims the feed in the new epoch", () => {
  const { a, b, time, nodes } = setUp();
  const { reader, read } = ownerOf(a);
  read(0, chainOf(1, 4));
  time.advance(20);
  a.replica.feeds.onClaims((target) => {
    if (a.replica.feeds.claimOf(target) === undefined && reader.role === "none") reader.setRole("owner");
  });
  a.replica.ports.renewEpoch(a.replica.ports.origin.epoch);
  tellMembers(nodes, nodes);
  time.advance(20);
  const { origin } = a.replica.ports;
  for (const { replica } of nodes) expect(replica.feeds.claimOf("engine")?.origin).toEqual(origin);
  expect(a.replica.feeds.claimsOf("engine").map((claim) => claim.origin)).toEqual([origin]);
  read(1, chainOf(2, 4));
  time.advance(epochIsClearMs);
  expect(b.heldBlocks("engine", chainOf(2, 4))).toBe(4);
});

/**
 * A router that starts alone with a clock that was set back reads an engine that others know for long, cannot see that it
 * does, and names an epoch of it. Once it hears the others it begins a later epoch of its own and gives its journal up; what
 * it had named stayed the newest epoch in its own fold, and what the others wrote of the engine counted nothing there.
 */
test("an epoch of an engine that only the epoch before has named is named again", () => {
  const time = createVirtualTime();
  const [a, b] = [createNode("a", time), createNode("b", time)] as const;
  const other = ownerOf(b);
  other.read(0, chainOf(1, 4));
  const own = ownerOf(a);
  own.read(16, chainOf(2, 4));
  for (const { replica } of [a, b]) void replica.start();
  time.advance(1_000);
  const { epoch } = a.replica.fold.state("engine")!;
  expect(epoch?.sequence).toBe(16);
  a.replica.ports.renewEpoch(a.replica.ports.origin.epoch);
  join([a, b]);
  time.advance(1_000);
  expect(b.replica.fold.state("engine")?.epoch).toEqual(epoch);
});

test("one that joins after it learns all that was read before it, from the state that others have", () => {
  const { a, time, nodes } = setUp();
  const { reader, read } = ownerOf(a);
  for (let sequence = 0; sequence < 5; sequence++) read(sequence, chainOf(sequence, 3));
  time.advance(20);
  a.replica.ports.renewEpoch(a.replica.ports.origin.epoch);
  reader.setRole("owner");
  read(5, chainOf(5, 3));
  time.advance(epochIsClearMs);
  const late = createNode("late", time);
  const sink = late.replica.ports.snapshots.beginImport();
  for (const frame of nodes[1].replica.ports.snapshots.exportFrames(65_536)) sink.frame(frame);
  sink.end();
  for (let sequence = 0; sequence <= 5; sequence++) expect(late.heldBlocks("engine", chainOf(sequence, 3))).toBe(3);
});

test("loads are told anew, and those of the epoch before count no more", () => {
  const { a, b, time } = setUp();
  const inFlight = () => b.replica.load.shared.inFlight[b.slots.find("engine")] ?? 0;
  const gauge = {
    inFlight: 3,
    pendingPrefillTokens: 30,
    decodeTokens: 7,
    pendingWorkMs: 9,
    activeTokens: 5,
    lendingTokens: 6,
    yieldingInFlight: 6,
    answers: 2,
  };
  b.slots.slotOf("engine");
  a.replica.load.set("engine", gauge);
  expect(inFlight()).toBe(3);
  a.replica.ports.renewEpoch(a.replica.ports.origin.epoch);
  time.advance(500);
  expect(inFlight()).toBe(3);
  expect(b.replica.load.describe().map(({ epoch }) => epoch)).toEqual([a.replica.ports.origin.epoch]);
  a.replica.load.set("engine", {
    inFlight: 0,
    pendingPrefillTokens: 0,
    decodeTokens: 0,
    pendingWorkMs: 0,
    activeTokens: 0,
    lendingTokens: 0,
    yieldingInFlight: 0,
    answers: 0,
  });
  time.advance(20);
  expect(inFlight()).toBe(0);
});

test("the registry goes on as it was, with the same writer", () => {
  const { a, b, time } = setUp();
  a.replica.registry.putEngine("engine", "a", { url: "http://engine" });
  a.replica.ports.renewEpoch(a.replica.ports.origin.epoch);
  a.replica.registry.setDraining("engine", true);
  time.advance(20);
  expect(b.replica.registry.engines()).toHaveLength(1);
  expect(b.replica.registry.drainingOf("engine")).toBe(true);
  expect(b.replica.registry.describe().clients).toBe(1);
});
