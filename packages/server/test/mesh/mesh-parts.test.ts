import {
  createSeededRandom,
  EspalierError,
  silentLogger,
  silentMeter,
  systemClock,
  systemScheduler,
} from "@espalier/core";
import { createPrefixIndex, tier } from "@espalier/prefix-index";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { describeMesh } from "../../src/mesh/describe-mesh.ts";
import { createBackend, createMeshParts, type MeshParts } from "../../src/mesh/mesh-parts.ts";

import { specOf, startScriptedFleet } from "../prefix/scripted-fleet.ts";
import { chainOf, configOf, createLoneReplica, noRelease, startMeshParts } from "./mesh-rig.ts";

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const system = { clock: systemClock, scheduler: systemScheduler };

async function start(mesh: object = {}) {
  const router = startMeshParts(configOf({ port: 0, secret: "a secret of sixteen characters", ...mesh }), system);
  ends.push(() => router.parts.stop());
  await router.parts.start();
  const { fleet, apply } = await startScriptedFleet();
  const forgotten: number[] = [];
  router.parts.attachFleet(fleet, (slot) => forgotten.push(slot));
  return { ...router, fleet, apply, forgotten };
}

async function pair() {
  const one = await start({ "router-id": "one" });
  const other = await start({ "router-id": "other", seeds: [one.parts.address] });
  const isLinked = ({ parts }: { parts: MeshParts }) => parts.describe().members.some(({ isLinked: linked }) => linked);
  await waitFor(() => isLinked(one) && isLinked(other), { what: "links" });
  return { one, other };
}

test("with the backend off there are no parts", () => {
  const parts = createMeshParts({
    ...{ config: configOf({}), release: noRelease, ...system, logger: silentLogger, meter: silentMeter },
    ...{ random: createSeededRandom(1), index: createPrefixIndex({ maxTargets: 4, maxBlocks: 100, maxSets: 10 }) },
  });
  expect(parts).toBeUndefined();
});

test("a router by itself waits for nobody, tells its address, and describes itself", async () => {
  const { parts } = await start({ "router-id": "alone" });
  await waitFor(() => parts.waitingFor.length === 0, { what: "a router that waits for nothing" });
  expect(parts.address).toMatch(/^127\.0\.0\.1:\d+$/);
  expect(parts.describe()).toMatchObject({
    ...{ backend: "peers", cluster: "default", events: "owner", router: "alone", members: [], targets: [] },
    ...{ feeds: { owned: 0, backup: 0, unowned: 0 }, facts: { targets: 0, blocks: 0, digest: "0000000000000000" } },
  });
});

test("engines drained at one router are drained at the other, those that it comes to know later too", async () => {
  const { one, other } = await pair();
  await one.apply(specOf("a"), specOf("b"));
  await other.apply(specOf("a"));
  one.fleet.setDraining(one.fleet.engines[0]!.id, true);
  one.fleet.setDraining(one.fleet.engines[1]!.id, true);
  await waitFor(() => other.fleet.engines[0]?.draining, { what: "drained engine" });
  await waitFor(() => other.parts.replica.registry.drainingOf("b") === true, { what: "what is known of the other" });
  await other.apply(specOf("a"), specOf("b"));
  expect(other.fleet.engines.map(({ draining }) => draining)).toEqual([true, true]);
  other.fleet.setDraining(other.fleet.engines[0]!.id, false);
  await waitFor(() => one.fleet.engines[0]?.draining === false, { what: "undrained engine" });
  expect(one.fleet.engines[1]?.draining).toBe(true);
});

test("guesses of a target are forgotten at every router when its engine's epoch becomes another, and not before", async () => {
  const { one, other } = await pair();
  const reader = one.parts.replica.openFeed("a", () => {});
  reader.setRole("owner");
  const store = (sequence: number, timestampUs: number, seed: number): void => {
    reader.sink.stored(tier.gpu, chainOf(seed, 4), 0, 4);
    reader.batch({ sequence, timestampUs, checksum: seed }, true);
  };
  store(0, 1_000_000, 1);
  store(1, 1_000_001, 2);
  const isAt = (sequence: number) => () => other.parts.replica.fold.state("a")?.last?.sequence === sequence;
  await waitFor(isAt(1), { what: "facts" });
  expect([one.forgotten, other.forgotten]).toEqual([[], []]);
  reader.newEpoch();
  store(0, 9_000_000, 3);
  await waitFor(isAt(0), { what: "the new epoch" });
  expect([one.forgotten, other.forgotten]).toEqual([[0], [0]]);
  expect(other.parts.describe().facts).toEqual(one.parts.describe().facts);
  expect(other.parts.describe().facts.blocks).toBe(4);
});

test("a router that drains says so to the others", async () => {
  const { one, other } = await pair();
  one.parts.setDraining();
  await waitFor(() => other.parts.describe().members[0]?.isDraining, { what: "a draining member" });
});

describe("what links are made of", () => {
  const backendOf = (mesh: object, time = createVirtualTime()) => {
    const { replica } = createLoneReplica(time);
    return createBackend({
      ...{ config: configOf({ ...mesh }), replica, random: createSeededRandom(1), ...time },
      ...{ logger: silentLogger, meter: silentMeter },
    }).backend;
  };

  test("links of its own, at the address that is advertised, or where it listens", async () => {
    const advertised = backendOf({ port: 0, advertise: "router.example:7946" });
    const plain = backendOf({ port: 0 });
    for (const backend of [advertised, plain]) {
      ends.push(() => backend.stop());
      await backend.start();
    }
    expect(advertised.describe()).toMatchObject({ kind: "mesh", address: "router.example:7946" });
    expect(plain.describe().address).toMatch(/^127\.0\.0\.1:[1-9]\d*$/);
  });

  test("Redis where its URL is given: no address", () => {
    expect(backendOf({ "redis-url": "redis://127.0.0.1:1" }).describe()).toMatchObject({
      kind: "redis",
      address: null,
    });
  });

  // Symptom: `mesh.join-grace` did nothing with Redis. Mechanism: the backend had a limit of its own in its place, of 5 s.
  test("Redis that is away is waited for as long as mesh.join-grace says", async () => {
    const time = createVirtualTime();
    const backend = backendOf({ "redis-url": "redis://127.0.0.1:1", "join-grace": "20s" }, time);
    ends.push(() => backend.stop());
    await backend.start();
    time.advance(19_999);
    expect(backend.waitingFor).toEqual(["redis"]);
    time.advance(1);
    expect(backend.waitingFor).toEqual([]);
  });

  test("a certificate that cannot be read is told with its path, before anything listens", () => {
    const tls = { "cert-file": "/nowhere/cert.pem", "key-file": "/nowhere/key.pem", "ca-file": "/nowhere/ca.pem" };
    const made = () => backendOf({ port: 0, tls });
    expect(made).toThrow(EspalierError);
    expect(made).toThrow("/nowhere/cert.pem");
  });
});

describe("the description", () => {
  /** Facts of many targets, told in this order. */
  function described(targets: readonly number[]) {
    const time = createVirtualTime();
    const { replica } = createLoneReplica(time);
    for (const target of targets) {
      const reader = replica.openFeed(`engine-${target}`, () => {});
      reader.setRole("owner");
      reader.setQuality("complete", "live", "complete", null);
      reader.sink.stored(tier.gpu, chainOf(target, 2), 0, 2);
      reader.batch({ sequence: 0, timestampUs: 5, checksum: target }, true);
    }
    const make = (): never => {
      throw new Error("nothing is read here");
    };
    const nomination = { region: undefined, lastOwner: undefined, latest: undefined, unclaimedSinceMs: undefined };
    for (const [target, role, owner] of [
      ["engine-0", "owner", "r1"],
      ["engine-1", "backup", "r1"],
      ["engine-2", "none", undefined],
    ] as const) {
      Object.assign(replica.feeds.open(target), {
        ...{ make, role },
        nomination: { ...nomination, owner, lostAtMs: 0, announcedAtMs: 0 },
      });
    }
    return describeMesh({
      ...{ config: configOf({ port: 0 }), replica },
      backend: {
        describe: () => ({ kind: "mesh", address: "a:1", members: [], refused: [], waitingFor: ["peers"] }),
      } as never,
      watch: { releaseOf: () => ({ version: null, settings: null, differs: [] }), lost: () => [] },
    });
  }

  test("tells of roles, of facts, and of every target", () => {
    const { feeds, facts, targets, waitingFor } = described([0, 1]);
    expect([feeds, waitingFor]).toEqual([{ owned: 1, backup: 1, unowned: 1 }, ["peers"]]);
    expect(facts).toMatchObject({ targets: 2, blocks: 4, settled: 2 });
    expect(targets).toMatchObject([
      { target: "engine-0", owner: "r1", quality: "complete", epoch: "0.5", sequence: 0, isComplete: true, blocks: 2 },
      { target: "engine-1", owner: "r1", quality: "complete", epoch: "0.5", sequence: 0, isComplete: true, blocks: 2 },
    ]);
    expect(targets[0]?.digest).toMatch(/^[0-9a-f]{16}$/);
  });

  test("has the same digest for the same facts in whatever order, another one for others", () => {
    const digestOf = (...targets: number[]) => described(targets).facts.digest;
    expect(digestOf(0, 1, 2)).toBe(digestOf(2, 0, 1));
    expect(digestOf(0, 1)).not.toBe(digestOf(0, 2));
  });

  test("lists 1,024 targets one by one, of one more only the sum", () => {
    const { facts, targets } = described(Array.from({ length: 1_025 }, (_, at) => at));
    expect([facts.targets, facts.blocks, targets.length]).toEqual([1_025, 2_050, 1_024]);
  });
});
