import { createSeededRandom } from "@espalier/core";
import type { LoadTicket } from "@espalier/engines";
import { idleGauge } from "@espalier/shared-tree";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { LoadTable } from "../../src/delayed/shared-load.ts";
import { type RouterRig, routerRig, type TierRig, tierRig } from "./tier-rig.ts";

const size = { promptTokens: 100, expectedOutputTokens: 40, workMs: 25 };

describe("load", () => {
  test.each([
    ["oracle", 0],
    ["mesh", 11],
  ] as const)("of routers of %s is known to the others after %d ms", async (sharing, waitMs) => {
    const { time, routers } = await tierRig(sharing, 3);
    routers[0]!.target(1).load.begin(size);
    if (waitMs > 0) {
      time.advance(waitMs - 0.5);
      expect(routers.map((router) => router.othersAt(1))).toEqual([0, 0, 0]);
      time.advance(0.5);
    }
    expect(routers.map((router) => router.othersAt(1))).toEqual([0, 1, 1]);
    expect(routers[2]!.view.sharedLoad.pendingPrefillTokens[1]).toBe(100);
    expect(routers[2]!.view.sharedLoad.pendingWorkMs[1]).toBe(25);
    expect(routers[2]!.othersAt(0)).toBe(0);
  });

  test("is told once a second by gossip, as it is then", async () => {
    const { time, routers } = await tierRig("gossip-1s");
    const [one, other] = routers;
    const quietCount = time.pendingCount;
    const ticket = one!.target(1).load.begin(size);
    one!.target(2).load.begin(size);
    time.advance(700);
    ticket.end();
    one!.target(1).load.begin({ ...size, promptTokens: 30 });
    time.advance(301.5);
    expect([other!.othersAt(1), other!.othersAt(2)]).toEqual([0, 0]);
    time.advance(0.5);
    expect([other!.othersAt(1), other!.othersAt(2)]).toEqual([1, 1]);
    expect(other!.view.sharedLoad.pendingPrefillTokens[1]).toBe(30);
    expect(one!.othersAt(1)).toBe(0);
    // Nothing has changed, so there is nothing to tell.
    expect(time.pendingCount).toBe(quietCount);
  });

  test.each(["none", "events-only"] as const)("of routers of %s is not known to the others", async (sharing) => {
    const { time, routers } = await tierRig(sharing);
    routers[0]!.target(1).load.begin(size);
    time.advance(5_000);
    expect(routers[1]!.othersAt(1)).toBe(0);
    expect(routers[1]!.view.sharedLoad.ageMs(1)).toBe(0);
  });

  test("is nobody's where a router is alone", async () => {
    for (const sharing of ["mesh", "oracle", "gossip-1s"] as const) {
      const { time, routers } = await tierRig(sharing, 1);
      routers[0]!.target(1).load.begin(size);
      time.advance(2_000);
      expect(routers[0]!.othersAt(1)).toBe(0);
    }
  });

  test("that becomes less, and progress, is told as routers of a mesh do: a little later", async () => {
    const { time, routers } = await tierRig("mesh");
    const [one, other] = routers;
    const { decodeTokens, pendingPrefillTokens } = other!.view.sharedLoad;
    const ticket = one!.target(0).load.begin(size);
    time.advance(25);
    ticket.firstToken();
    time.advance(11);
    expect([pendingPrefillTokens[0], decodeTokens[0]]).toEqual([100, 0]);
    time.advance(8);
    expect([pendingPrefillTokens[0], decodeTokens[0]]).toEqual([0, 100]);
    ticket.progress(7);
    time.advance(50 + 11);
    expect(decodeTokens[0]).toBe(107);
    ticket.end();
    time.advance(8 + 11);
    expect([other!.othersAt(0), decodeTokens[0]]).toEqual([0, 0]);
  });

  test("is as old as the oldest that is in the sum", async () => {
    const { time, routers } = await tierRig("mesh", 3);
    expect(routers[2]!.view.sharedLoad.ageMs(0)).toBe(0);
    const first = routers[0]!.target(0).load.begin(size);
    time.advance(20);
    routers[1]!.target(0).load.begin(size);
    time.advance(20);
    expect(routers[2]!.view.sharedLoad.ageMs(0)).toBe(40 - 11);
    expect(routers[0]!.view.sharedLoad.ageMs(0)).toBe(20 - 11);
    first.end();
    time.advance(19);
    expect(routers[2]!.view.sharedLoad.ageMs(0)).toBe(39 - 11);
  });

  test.each(["mesh", "gossip-1s", "oracle"] as const)("of a router of %s that stops is gone", async (sharing) => {
    const { time, tier, engines, routers } = await tierRig(sharing);
    const [one, other] = routers;
    const ticket = one!.target(0).load.begin(size);
    one!.target(2).load.begin(size);
    time.advance(2_000);
    expect([0, 1, 2].map((engine) => other!.othersAt(engine))).toEqual([1, 0, 1]);
    one!.target(2).load.begin(size);
    await one!.view.stop();
    ticket.end();
    one!.target(1).load.begin(size);
    time.advance(2_000);
    expect([0, 1, 2].map((engine) => other!.othersAt(engine))).toEqual([0, 0, 0]);
    // Its next epoch begins with nothing, and is heard.
    const again = routerRig(tier, 0, engines, time.clock);
    await again.view.start();
    again.target(1).load.begin(size);
    time.advance(2_000);
    expect([0, 1, 2].map((engine) => other!.othersAt(engine))).toEqual([0, 1, 0]);
    await one!.view.stop();
    expect(other!.othersAt(1)).toBe(1);
  });
});

/** Sends, answers and ends requests at random, and calls `check` now and then. */
function runTraffic(rig: TierRig, seed: number, check: () => void): void {
  const random = createSeededRandom(seed);
  const open: LoadTicket[] = [];
  for (let step = 0; step < 4_000; step++) {
    const router = rig.routers[random.integer(rig.routers.length)]!;
    const kind = random.integer(4);
    const ticket = open[random.integer(Math.max(1, open.length))];
    if (kind === 0 || !ticket) {
      const target = router.target(random.integer(rig.engines.length));
      const promptTokens = random.integer(5_000);
      const expectedOutputTokens = random.integer(300);
      open.push(target.load.begin({ promptTokens, expectedOutputTokens, workMs: random.integer(600) }));
    } else if (kind === 1) ticket.firstToken();
    else if (kind === 2) ticket.progress(random.integer(40));
    else open.splice(open.indexOf(ticket), 1)[0]!.end();
    rig.time.advance(random.integer(8) === 0 ? random.float() * 60 : random.float());
    if (step % 20 === 0) check();
  }
  for (const ticket of open) ticket.end();
}

type Column = "inFlight" | "pendingPrefillTokens" | "decodeTokens" | "pendingWorkMs";
const columns: readonly Column[] = ["inFlight", "pendingPrefillTokens", "decodeTokens", "pendingWorkMs"];

function seen({ view }: RouterRig): number[][] {
  return columns.map((column) => [...view.sharedLoad[column]]);
}

/** What the other routers have, by their own books. */
function others(rig: TierRig, router: number): number[][] {
  return columns.map((column) =>
    rig.engines.map(({ number }) =>
      rig.routers.reduce((sum, { target }, other) => sum + (other === router ? 0 : target(number).load[column]), 0),
    ),
  );
}

describe("load under random traffic", () => {
  for (const sharing of ["mesh", "gossip-1s", "oracle"] as const) {
    for (const seed of [1, 2, 3]) {
      test(`is never negative, and zero once all is done (${sharing}, seed ${seed})`, async () => {
        const rig = await tierRig(sharing, 4, 5);
        const wrong: string[] = [];
        runTraffic(rig, seed, () => {
          for (const [router, rigged] of rig.routers.entries()) {
            const sums = seen(rigged);
            if (sums.flat().some((sum) => !(sum >= 0))) wrong.push(`router ${router} at ${rig.time.clock.nowMs()}`);
            if (sharing === "oracle" && sums.flat().join() !== others(rig, router).flat().join()) wrong.push("oracle");
          }
        });
        expect(wrong).toEqual([]);
        rig.time.advance(1_100);
        for (const router of rig.routers)
          expect(
            seen(router)
              .flat()
              .every((sum) => sum === 0),
          ).toBe(true);
      });
    }

    test(`is what the others have once it was quiet for a while (${sharing})`, async () => {
      const rig = await tierRig(sharing, 3, 4);
      const random = createSeededRandom(9);
      for (let round = 0; round < 20; round++) {
        for (const { target } of rig.routers) {
          for (let index = 0; index < 3; index++) {
            const ticket = target(random.integer(4)).load.begin(size);
            rig.time.advance(random.float() * 5);
            if (random.integer(2) === 0) ticket.progress(random.integer(30));
            if (random.integer(2) === 0) ticket.end();
          }
        }
        rig.time.advance(1_100);
        for (const router of rig.routers.keys()) expect(seen(rig.routers[router]!)).toEqual(others(rig, router));
      }
    });
  }
});

test("sums of reports are what each router but one's own last said", () => {
  const { clock } = createVirtualTime();
  const random = createSeededRandom(21);
  const channel = new LoadTable({ routers: 3, targets: 2 }, clock, () => 0);
  const last = Array.from({ length: 3 }, () => [0, 0]);
  const wrong: number[] = [];
  for (let step = 0; step < 2_000; step++) {
    const router = random.integer(3);
    const target = random.integer(2);
    const inFlight = random.integer(50);
    const activeTokens = inFlight * 16;
    const lendingTokens = inFlight * 24;
    const gauge = { ...idleGauge, inFlight, activeTokens, lendingTokens, yieldingInFlight: inFlight * 2 };
    channel.receive({ router, target, gauge });
    last[router]![target] = inFlight;
    for (const reader of [0, 1, 2]) {
      const expected = last.reduce((sum, said, other) => sum + (other === reader ? 0 : said[target]!), 0);
      const seen = channel.seenBy(reader);
      if (seen.inFlight[target] !== expected || seen.activeTokens[target] !== expected * 16) wrong.push(step);
    }
  }
  expect(wrong).toEqual([]);
});

test("work of others is pending since it was sent, and computed when some of it was last told to be gone, as far as it is heard of", () => {
  const time = createVirtualTime();
  const channel = new LoadTable({ routers: 3, targets: 1 }, time.clock, () => 4);
  const seen = channel.seenBy(2);
  const times = () => [seen.pendingWorkMs[0], seen.pendingSinceMs[0], seen.computedMs[0]];
  const say = (router: number, pendingWorkMs: number) => {
    const gauge = { ...idleGauge, inFlight: 3, pendingPrefillTokens: pendingWorkMs, pendingWorkMs };
    channel.receive({ router, target: 0, gauge });
    time.advance(10);
  };
  const startMs = time.clock.nowMs();
  expect(seen.sinceMs).toBe(startMs);
  const never = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY] as const;
  expect(times()).toEqual([0, ...never]);
  say(0, 0);
  expect(times()).toEqual([0, ...never]);
  say(0, 300);
  say(1, 50);
  expect(times()).toEqual([350, startMs + 6, Number.NEGATIVE_INFINITY]);
  say(0, 100);
  expect(times()).toEqual([150, startMs + 6, startMs + 26]);
  say(1, 0);
  expect(times()).toEqual([100, startMs + 6, startMs + 36]);
  say(0, 0);
  expect(times()).toEqual([0, Number.POSITIVE_INFINITY, startMs + 46]);
  say(1, 7);
  expect(times()).toEqual([7, startMs + 56, startMs + 46]);
  expect(seen.sentWorkMs[0]).toBe(357);
  // One's own work is not that of others.
  say(2, 900);
  expect(times()).toEqual([7, startMs + 56, startMs + 46]);
  expect([0, 1, 2].map((router) => channel.seenBy(router).sentWorkMs[0])).toEqual([957, 1_200, 357]);
});
