import { tier } from "@espalier/prefix-index";
import { afterEach, expect, test } from "vitest";
import type { MeshDescription } from "../../src/mesh/describe-mesh.ts";
import { createOverview } from "../../src/mesh/overview.ts";
import { specOf, startScriptedFleet } from "../prefix/scripted-fleet.ts";
import { chainOf, createLoneReplica } from "./mesh-rig.ts";

const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

const self: Partial<MeshDescription> = {
  ...{ router: "r1" as never, epoch: 5, address: "a:1" },
  feeds: { owned: 2, backup: 1, unowned: 0 },
  lost: [{ router: "r7", address: "c:3", sinceMs: 1 }],
  refused: [
    {
      address: "d:4",
      by: "self",
      claimed: null,
      reason: "bad-secret" as never,
      detail: "",
      count: 1,
      firstMs: 1,
      lastMs: 1,
    },
  ],
};

const member = { router: "r2", state: "alive", isLinked: true, isDraining: false, address: "b:2", lagMs: 3 };

const noTraffic = {
  ...{ requests: 0, answered: 0, refused: 0, failed: 0, cut: 0, cancelled: 0, limited: 0 },
  ...{ promptTokens: 0, cachedTokens: 0, completionTokens: 0 },
  ...{ firstBytes: 0, firstByteS: 0, met: 0, missed: 0, streams: 0, tpotS: 0 },
};

/** An overview of a scripted fleet, and what a reader of its document sees. */
async function startOverview({ isShared = true, isFollowed = true } = {}) {
  const scripted = await startScriptedFleet();
  const { time, fleet } = scripted;
  const lone = createLoneReplica(time);
  let members: readonly object[] = [];
  /** How often the mesh was described: once for each time that the summary is made. */
  let made = 0;
  const describe = (): MeshDescription => {
    made++;
    return { ...self, members } as MeshDescription;
  };
  const totals = { ...noTraffic };
  let queued = 0;
  const overview = createOverview({
    ...{ origin: lone.replica.ports.origin, index: lone.index, fleet, ...time },
    shared: isShared ? { ...lone, describe } : undefined,
    queues: () => [{ name: "batch", queued, waited: 0, waitedMs: 0, shed: 0 }],
    totals: () => totals,
    inFlight: () => 0,
    feedCount: () => 3,
    status: () => ({ ready: false, reasons: ["no engines known"], draining: false, reload: null }),
    release: () => ({ version: "9.9.9", settings: "0" }),
    adminOf: (router) => `http://${router}.example:9090`,
  });
  const { document } = overview;
  ends.push(() => overview.stop());
  if (isFollowed) document.onFollowed();
  let updates = 0;
  document.onUpdate(() => updates++);
  const texts = (): string => {
    const pieces = [...document.diff(document.name, Uint8Array.of(0), 2 ** 20)];
    return Buffer.concat(pieces.map(({ bytes }) => bytes)).toString("latin1");
  };
  return {
    ...scripted,
    ...lone,
    overview,
    texts,
    updates: () => updates,
    made: () => made,
    /** What is new is seen within a second and written within another one. */
    refresh: () => time.advanceAsync(2_000),
    totals,
    setQueued: (count: number) => {
      queued = count;
    },
    setMembers: (given: readonly object[]) => {
      members = given;
    },
  };
}

test("it is named after the router, and empty until somebody follows it", async () => {
  const { overview, texts } = await startOverview({ isFollowed: false });
  expect(overview.document.name).toBe("overview/r1");
  expect(texts()).not.toContain("engines");
});

/**
 * Symptom: a router that nobody looked at spent milliseconds of each second on its event loop. Mechanism: the summary was made
 * whether anybody followed it or not.
 */
test("without followers nothing is computed; the first one gets a fresh one at once, and when the last has gone it ends", async () => {
  const { apply, made, overview, refresh, setMembers, texts, time, updates } = await startOverview({
    isFollowed: false,
  });
  await apply(specOf("engine-a"));
  for (let at = 0; at < 5; at++) await refresh();
  expect([made(), updates()]).toEqual([0, 0]);

  setMembers([member]);
  const unfollow = overview.document.onFollowed();
  expect(made()).toBe(1);
  for (const word of ["engine-a", "r2"]) expect(texts()).toContain(word);

  const unfollowOther = overview.document.onFollowed();
  expect(made()).toBe(1);
  await time.advanceAsync(2_000);
  expect(made()).toBe(3);
  unfollow();
  await time.advanceAsync(2_000);
  expect(made()).toBe(5);
  unfollowOther();
  await time.advanceAsync(60_000);
  expect(made()).toBe(5);

  setMembers([member, { ...member, router: "r3" }]);
  overview.document.onFollowed();
  expect(made()).toBe(6);
  expect(texts()).toContain("r3");
});

test("engines, with who reads them and what that is worth", async () => {
  const { apply, refresh, replica, texts, fleet } = await startOverview();
  await apply(specOf("engine-a", { region: "us-east-1" }), specOf("engine-b"));
  const reader = replica.openFeed("engine-a", () => {});
  reader.setRole("owner");
  reader.setQuality("complete", "live", "complete", null);
  reader.sink.stored(tier.gpu, chainOf(1, 5), 0, 5);
  reader.batch({ sequence: 0, timestampUs: 5, checksum: 1 }, true);
  fleet.setDraining(fleet.engines[1]!.id, true);
  await refresh();
  const seen = texts();
  for (const word of [
    "engine-a",
    "engine-b",
    "closed",
    "complete",
    "quality",
    "owner",
    "blocks",
    "us-east-1",
    "networkMs",
  ]) {
    expect(seen, word).toContain(word);
  }
});

test("links change when members do, and nothing is written while nothing changes", async () => {
  const { refresh, setMembers, texts, updates } = await startOverview();
  await refresh();
  const before = updates();
  for (let at = 0; at < 5; at++) await refresh();
  expect(updates()).toBe(before);
  setMembers([member]);
  await refresh();
  expect(updates()).toBe(before + 1);
  expect(texts()).toContain("r2");
  setMembers([{ ...member, lagMs: 4 }]);
  await refresh();
  expect(updates()).toBe(before + 1);
  setMembers([{ ...member, lagMs: 99 }]);
  await refresh();
  expect(updates()).toBe(before + 2);
  expect(texts()).toContain("http://r2.example:9090");
});

test("routers that were lost and refused, this router's release and in what others differ", async () => {
  const { refresh, setMembers, texts } = await startOverview();
  setMembers([{ ...member, version: "9.9.8", differs: ["policy"] }]);
  await refresh();
  for (const word of ["r7", "c:3", "bad-secret", "9.9.9", "9.9.8", "policy"]) expect(texts(), word).toContain(word);
});

test("traffic and queues, once they change", async () => {
  const { refresh, setQueued, texts, totals, updates } = await startOverview();
  await refresh();
  const before = updates();
  totals.requests = 17;
  totals.firstByteS = 0.25;
  await refresh();
  expect(updates()).toBe(before + 1);
  setQueued(5);
  await refresh();
  expect(updates()).toBe(before + 2);
  for (const word of ["batch", "firstByteMs", "indexBytes"]) expect(texts(), word).toContain(word);
});

test("a router that shares nothing tells of its engines, its own load and what was sent there", async () => {
  const { apply, index, refresh, target, texts, time } = await startOverview({ isShared: false });
  await apply(specOf("engine-a"), specOf("engine-b"));
  for (const name of ["engine-a", "engine-b"]) {
    const at = target(name).index;
    index.placements.setCapacity(at, 1_000);
    index.place(at, chainOf(7, 20), 20, { nowMs: time.clock.nowMs(), ttlMs: 60_000 });
  }
  await refresh();
  const seen = texts();
  for (const word of ["engine-a", "engine-b", "http://r1.example:9090"]) expect(seen, word).toContain(word);
  expect(seen).toMatch(/placed.{1,4}\x14/s);
});

test("loads: this router's own and those of others", async () => {
  const { apply, refresh, target, updates } = await startOverview();
  await apply(specOf("engine-a"));
  await refresh();
  const before = updates();
  const ticket = target("engine-a").load.begin({ promptTokens: 10, expectedOutputTokens: 5 });
  await refresh();
  expect(updates()).toBe(before + 1);
  ticket.end();
  await refresh();
  expect(updates()).toBe(before + 2);
});

test("who waits at an engine and since when: written once, however long it takes; and medians", async () => {
  const { apply, refresh, target, texts, time, updates } = await startOverview();
  await apply(specOf("engine-a"));
  const send = () => target("engine-a").load.begin({ promptTokens: 10, expectedOutputTokens: 5, answer: "stream" });
  const first = send();
  await time.advanceAsync(50);
  first.firstToken();
  first.end();
  send();
  await refresh();
  expect(texts()).toMatch(/ttftMs\}\x32/);
  await time.advanceAsync(5_000);
  const before = updates();
  await time.advanceAsync(20_000);
  expect(updates()).toBe(before);
  await time.advanceAsync(80_000);
  // The median has left its minute, the engine is unresponsive, its circuit opens and is half-open: 80 s change nothing else.
  expect(updates() - before).toBeLessThanOrEqual(4);
  expect(texts()).toMatch(/unresponsiveSinceMs[^~]/);
});

test("whether it is ready, and why not", async () => {
  const { refresh, texts } = await startOverview();
  await refresh();
  expect(texts()).toContain("no engines known");
});

test("128 engines are listed, one more is not", async () => {
  const { apply, refresh, texts } = await startOverview();
  await apply(...Array.from({ length: 129 }, (_, at) => specOf(`engine-${1_000 + at}`)));
  await refresh();
  expect([texts().includes("engine-1127"), texts().includes("engine-1128")]).toEqual([true, false]);
});

// Symptom: a fleet of many engines with ranks had an empty page. Mechanism: its section was longer than one may be, and was
// replaced as a whole.
test("engines with many ranks are listed as far as they fit, and in the section of load as many at least", async () => {
  const { apply, refresh, texts } = await startOverview();
  await apply(...Array.from({ length: 128 }, (_, at) => specOf(`engine-${1_000 + at}`, { ranks: 8 })));
  await refresh();
  expect(texts()).not.toContain("tooLarge");
  const listed = new Set([...texts().matchAll(/engine-1\d{3}/g)].map(([id]) => id));
  expect(listed.size).toBeGreaterThan(20);
  expect(listed.size).toBeLessThan(128);
  expect(listed).toContain("engine-1000");
});

test("the document stays as small as what it shows, however long the router runs", async () => {
  const { apply, overview, refresh, target } = await startOverview();
  await apply(...Array.from({ length: 20 }, (_, at) => specOf(`engine-${at}`)));
  await refresh();
  await refresh();
  const before = overview.document.state(overview.document.name)!.byteLength;
  for (let at = 0; at < 200; at++) {
    const ticket = target("engine-3").load.begin({ promptTokens: 10 + at, expectedOutputTokens: 5 });
    await refresh();
    ticket.end();
  }
  await refresh();
  expect(overview.document.state(overview.document.name)!.byteLength).toBeLessThan(before * 1.2 + 1_000);
});

test("after the end nothing is looked at any more", async () => {
  const { overview, refresh, setMembers, updates } = await startOverview();
  await refresh();
  const before = updates();
  overview.stop();
  setMembers([member]);
  await refresh();
  expect(updates()).toBe(before);
});
