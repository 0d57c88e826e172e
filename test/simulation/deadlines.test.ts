import { createSeededRandom } from "@espalier/core";
import { createPrefixMatches } from "@espalier/prefix-index";
import { SimFleet } from "@espalier/simulator";
import { beforeEach, expect, test } from "vitest";
import { differences, unsettled } from "./convergence.ts";
import { Conversations } from "./conversations.ts";
import { EngineTruth } from "./engine-truth.ts";
import { type LiveRouter, liveRouters } from "./live-router.ts";
import { drawSwarm } from "./swarm.ts";

/** The deadlines of what must happen when something breaks, each in a fleet that works meanwhile. In virtual time, so exact. */
const { parameters, timing } = drawSwarm(1);
const routers = 4;
const requestsPerS = 30;
const stepMs = 5;

let fleet: SimFleet;
let truth: EngineTruth;
let isSending: boolean;
let underWay: number;

beforeEach(async () => {
  const shared = { sharing: "mesh", links: "real", policy: "least_work", seed: 5 } as const;
  fleet = new SimFleet({
    ...shared,
    routers,
    engines: 3,
    parameters,
    timing: { ...timing, eventDelayMs: 5, linkDelayMs: 0.5 },
  });
  truth = new EngineTruth(fleet.engines);
  isSending = true;
  underWay = 0;
  await fleet.start();
  sendOn(new Conversations({ random: createSeededRandom(5), count: 20, maxTokens: 600 }));
  await pass(2_000);
});

/** Sends requests at an even pace for as long as `isSending`. */
function sendOn(conversations: Conversations): void {
  if (!isSending) return;
  const request = conversations.next();
  if (request) {
    underWay++;
    fleet.send(request, ({ error }) => {
      underWay--;
      conversations.ended(request, error === undefined);
    });
  }
  fleet.time.scheduler.after(1_000 / requestsPerS, () => sendOn(conversations));
}

async function pass(durationMs: number): Promise<void> {
  await fleet.run(fleet.time.clock.nowMs() + durationMs);
}

/** Lets time pass until something holds. @returns how long that took, in milliseconds */
async function until(holds: () => boolean, timeoutMs = 30_000): Promise<number> {
  const startMs = fleet.time.clock.nowMs();
  while (!holds()) {
    if (fleet.time.clock.nowMs() - startMs > timeoutMs) throw new Error(`not within ${timeoutMs} ms`);
    await pass(stepMs);
  }
  return fleet.time.clock.nowMs() - startMs;
}

/** All but one. */
function othersThan(router: number): LiveRouter[] {
  return liveRouters(fleet).filter(({ number }) => number !== router);
}

const idOf = (router: number): string => `router-${router}`;

/** Whether nobody counts what a router has in flight. */
function isLoadGone(router: number): boolean {
  return othersThan(router).every(({ view }) =>
    view.tier.replica.load
      .describe()
      .every((origin) => origin.router !== idOf(router) || origin.leaseRemainingMs === 0),
  );
}

/** Whether each feed is read by one router that is not the one, as all the others see it. */
function areFeedsOwnedWithout(router: number): boolean {
  return fleet.engines.every(({ key }) => {
    const owners = othersThan(router).map(({ view }) => view.tier.ownership.ownerOf(key));
    return new Set(owners).size === 1 && owners[0] !== undefined && owners[0] !== idOf(router);
  });
}

test("a router that is killed counts nothing within 1 s, and its feeds are others' within 1 s more", async () => {
  const router = 1;
  fleet.killRouter(router);
  expect(await until(() => isLoadGone(router))).toBeLessThanOrEqual(1_000);
  expect(await until(() => areFeedsOwnedWithout(router))).toBeLessThanOrEqual(1_000);
});

test("a router that falls silent counts nothing within its lease, loses its feeds within 4 s, and is left out within 6 s", async () => {
  const router = 2;
  fleet.pauseRouter(router);
  const lapsedMs = await until(() => isLoadGone(router));
  expect(lapsedMs).toBeGreaterThan(500);
  expect(lapsedMs).toBeLessThanOrEqual(1_750);
  const ownedMs = lapsedMs + (await until(() => areFeedsOwnedWithout(router)));
  expect(ownedMs).toBeLessThanOrEqual(4_250);
  const isForgotten = (): boolean =>
    othersThan(router).every(({ view }) =>
      view.tier.backend.members().every(({ origin, state }) => origin.router !== idOf(router) || state === "down"),
    );
  expect(ownedMs + (await until(isForgotten))).toBeLessThanOrEqual(6_000);
});

test("a router that was stopped for 5 s takes nobody else for dead, and nobody takes another for dead", async () => {
  const router = 0;
  fleet.pauseRouter(router);
  const doomed: string[] = [];
  const watch = (): boolean => {
    for (const { number, view } of liveRouters(fleet)) {
      for (const { origin, state } of view.tier.backend.members()) {
        const isOther = origin.router !== idOf(router);
        if (isOther && (state === "down" || state === "left"))
          doomed.push(`${number} takes ${origin.router} for ${state}`);
      }
    }
    return doomed.length > 0;
  };
  const endMs = fleet.time.clock.nowMs() + 5_000;
  await until(() => watch() || fleet.time.clock.nowMs() >= endMs);
  fleet.resumeRouter(router);
  await until(() => watch() || unsettled(fleet).length === 0);
  const settledMs = fleet.time.clock.nowMs();
  await until(() => watch() || fleet.time.clock.nowMs() >= settledMs + 3_000);
  expect(doomed).toEqual([]);
});

test("after a partition of 60 s heals, all are equal within 5 s", async () => {
  fleet.partition([
    [0, 1],
    [2, 3],
  ]);
  await pass(59_000);
  isSending = false;
  await until(() => underWay === 0);
  fleet.heal();
  const equalMs = await until(() => differences(fleet, truth).length === 0);
  expect(equalMs).toBeLessThanOrEqual(5_000);
}, 120_000);

test("what a router has in flight is seen by all others within 20 ms", async () => {
  isSending = false;
  await until(() => underWay === 0);
  await pass(1_000);
  const [one, ...others] = liveRouters(fleet);
  const delays: number[] = [];
  for (let count = 1; count <= 30; count++) {
    const load = {
      inFlight: count,
      pendingPrefillTokens: 10,
      decodeTokens: 0,
      pendingWorkMs: 0,
      activeTokens: 0,
      lendingTokens: 0,
      yieldingInFlight: 0,
      answers: 0,
    };
    one!.view.tier.replica.load.set("engine-1", load);
    delays.push(await until(() => others.every(({ view }) => view.sharedLoad.inFlight[1] === count)));
    await pass(count);
  }
  expect(Math.max(...delays)).toBeLessThanOrEqual(20);
});

test("a placement is seen by all others within 25 ms mostly, and within 50 ms always", async () => {
  isSending = false;
  await until(() => underWay === 0);
  const [one, ...others] = liveRouters(fleet);
  const delays: number[] = [];
  const matches = createPrefixMatches(fleet.engines.length);
  for (let count = 1; count <= 40; count++) {
    const chain = Uint32Array.of(count, 77);
    const hasPlaced = ({ view: { index } }: LiveRouter): boolean => {
      index.match(chain, 1, fleet.time.clock.nowMs(), matches);
      return matches.placedBlocks[1] === 1;
    };
    expect(others.some(hasPlaced)).toBe(false);
    one!.view.tier.replica.placements.place("engine-1", chain, 1, { ttlMs: 600_000, isConfirmed: false });
    delays.push(await until(() => others.every(hasPlaced)));
    await pass(count);
  }
  delays.sort((left, right) => left - right);
  expect(delays[20]).toBeLessThanOrEqual(25);
  expect(delays.at(-1)).toBeLessThanOrEqual(50);
});
