import { createSeededRandom } from "@espalier/core";
import { createVirtualTime, fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { BusyShare, maxBusyShare } from "../../src/work/busy-share.ts";

/** So much is added, for what engines do besides prefill. */
const caution = 1.15;

/** Sends work of `workMs` every `everyMs`, for `durationMs`. */
function busyAt({ workMs, everyMs, durationMs }: Record<"workMs" | "everyMs" | "durationMs", number>) {
  const time = createVirtualTime();
  const share = new BusyShare(time.clock);
  const busy = {
    sent: (work: number) => share.sent(3, work),
    of: (engines: number) => share.of(share.sentTo(3), engines),
  };
  const send = (forMs: number, work = workMs) => {
    for (let atMs = 0; atMs < forMs; atMs += everyMs) {
      busy.sent(work);
      time.advance(everyMs);
    }
  };
  send(durationMs);
  return { time, busy, send, share };
}

test("nobody is busy before anything was sent", () => {
  const { time, busy } = busyAt({ workMs: 0, everyMs: 1_000, durationMs: 0 });
  expect(busy.of(4)).toBe(0);
  time.advance(600_000);
  expect(busy.of(4)).toBe(0);
});

describe("at a constant load it is that load over the engines' time", () => {
  test.each([
    [700, 1, 0.7],
    [800, 2, 0.4],
  ])("%d ms each second on %d engines: %d", (workMs, engines, share) => {
    for (const durationMs of [10_000, 60_000, 600_000]) {
      const { busy } = busyAt({ workMs, everyMs: 1_000, durationMs });
      // Of the first seconds there is one less than the time that is taken to be seen.
      const tolerance = durationMs === 10_000 ? 0.12 : 0.03;
      expect(Math.abs(busy.of(engines) / (caution * share) - 1)).toBeLessThan(tolerance);
    }
  });
});

test("it follows the load, three quarters of the way in a minute and a half", () => {
  const { busy, send, time } = busyAt({ workMs: 200, everyMs: 1_000, durationMs: 600_000 });
  send(84_000, 600);
  expect(busy.of(1) / caution).toBeCloseTo(0.5, 1);
  time.advance(600_000);
  expect(busy.of(1)).toBeLessThan(0.001);
});

test("it stays below 1, whatever is sent, and where no engine is left", () => {
  const { busy } = busyAt({ workMs: 5_000, everyMs: 1_000, durationMs: 60_000 });
  expect(busy.of(1)).toBe(maxBusyShare);
  expect(busy.of(0)).toBe(maxBusyShare);
  expect(busy.of(1_000)).toBeCloseTo(caution * 0.005, 3);
  expect(maxBusyShare).toBeLessThan(1);
});

test("what other engines are sent makes nobody wait at those that are asked about", () => {
  const { share, send, time } = busyAt({ workMs: 300, everyMs: 1_000, durationMs: 600_000 });
  for (let second = 0; second < 600; second++) {
    share.sent(40, 800);
    send(1_000);
  }
  const [one, other] = [share.sentTo(3), share.sentTo(40)];
  expect(share.of(one, 1)).toBeCloseTo(caution * 0.3, 1);
  expect(share.of(other, 1)).toBe(maxBusyShare);
  expect(share.of(one + other, 2)).toBeCloseTo(caution * 0.55, 1);
  expect(share.sentTo(4)).toBe(0);
  expect(share.sentTo(100_000)).toBe(0);
  time.advance(600_000);
  expect(share.of(share.sentTo(40), 1)).toBeLessThan(0.001);
});

test("after hours it says the same of the last minutes", () => {
  const { share, send, busy } = busyAt({ workMs: 300, everyMs: 1_000, durationMs: 600_000 });
  const early = busy.of(1);
  send(12 * 3_600_000);
  expect(busy.of(1)).toBeCloseTo(early, 3);
  expect(Number.isFinite(share.sentTo(3))).toBe(true);
});

describe("what other routers send counts like what this one does", () => {
  /** A share, and others that send to target 3 and are looked at when it is asked. */
  function rig(sinceMs = 0) {
    const time = createVirtualTime();
    const share = new BusyShare(time.clock);
    const shared = { sentWorkMs: new Float64Array(8), sinceMs: time.clock.nowMs() + sinceMs };
    const of = (engines = 1): number => {
      for (let target = 0; target < 9; target++) share.receive(target, shared, time.clock.nowMs());
      let sent = 0;
      for (let target = 0; target < 9; target++) sent += share.sentTo(target);
      return share.of(sent, engines) / caution;
    };
    const others = (workMs: number, target = 3) => {
      shared.sentWorkMs[target]! += workMs;
    };
    return { time, share, others, of };
  }

  test("two that send 200 and 100 ms each second keep one engine busy for three tenths of the time", () => {
    const { time, share, others, of } = rig();
    for (let second = 0; second < 600; second++) {
      share.sent(3, 200);
      others(100);
      time.advance(1_000);
    }
    // Those of the others are looked at for the first time: ten minutes of them are taken to have come evenly.
    expect(of()).toBeCloseTo(0.3, 2);
    expect(of(3)).toBeCloseTo(0.1, 2);
    // The same work is not counted twice, and is forgotten as any.
    expect(of()).toBeCloseTo(0.3, 2);
    time.advance(60_000);
    expect(of()).toBeCloseTo(0.3 / Math.E, 2);
  });

  test("it makes no difference who sends: a router that sends nothing sees what one that sends all does", () => {
    const [here, there] = [rig(), rig()];
    for (const workMs of [3_000, 0, 0, 50, 7_000, 0, 900]) {
      here.share.sent(3, workMs);
      there.others(workMs);
      expect(there.of()).toBeCloseTo(here.of(), 3);
      for (const { time } of [here, there]) time.advance(4_000);
      expect(there.of()).toBeCloseTo(here.of(), 3);
    }
  });

  test("of what was sent before this router counted, nothing counts", () => {
    // The others were heard for an hour before the pool was there; then for two seconds, at the same rate.
    const { time, others, of } = rig(-3_600_000);
    others(3_600_000 * 0.2);
    expect(of()).toBe(0);
    const late = rig(-3_600_000);
    late.others(3_602_000 * 0.2);
    late.time.advance(2_000);
    expect(late.of()).toBeCloseTo(0.2 * (2 / 3), 2);
    time.advance(2_000);
    expect(of()).toBe(0);
  });

  test("what nobody told of a target is nothing, one past the last that others tell of as well", () => {
    const { time, others, of, share } = rig();
    others(600, 7);
    time.advance(1);
    expect(of()).toBeCloseTo(0.6, 1);
    share.receive(8, { sentWorkMs: new Float64Array(8), sinceMs: 0 }, time.clock.nowMs());
    expect(share.sentTo(8)).toBe(0);
    // Columns grow on the way.
    share.receive(70, { sentWorkMs: new Float64Array(71).fill(500), sinceMs: 0 }, time.clock.nowMs());
    expect(share.sentTo(70)).toBeGreaterThan(450);
    expect(share.sentTo(69)).toBe(0);
  });

  for (const seed of fixedSeeds(4, 1)) {
    test(`random work of many routers is summed as by hand, looked at now and then (seed ${seed})`, () => {
      const random = createSeededRandom(seed);
      const { time, share, others, of } = rig();
      const sent: { readonly atMs: number; readonly workMs: number }[] = [];
      for (let step = 0; step < 3_000; step++) {
        const workMs = random.integer(300);
        if (random.integer(3) === 0) share.sent(random.integer(8), workMs);
        else others(workMs, random.integer(8));
        sent.push({ atMs: time.clock.nowMs(), workMs });
        time.advance(random.float() * 200);
        if (random.integer(10) === 0) of();
      }
      const nowMs = time.clock.nowMs();
      const kept = sent.reduce((sum, { atMs, workMs }) => sum + workMs * Math.exp((atMs - nowMs) / 60_000), 0);
      const byHand = kept / (60_000 * (1 - Math.exp((-nowMs - 1_000) / 60_000))) / 8;
      expect(Math.abs(of(8) / byHand - 1)).toBeLessThan(0.02);
    });
  }
});

describe.each([1, 2])("eight routers see the share that one sees that sends everything, seed %i", (seed) => {
  const routers = 8;
  const targets = 4;

  /** Random work of all of them; each looks at what the others sent when it sends something itself. */
  function fleetOf() {
    const random = createSeededRandom(seed);
    const time = createVirtualTime();
    const one = new BusyShare(time.clock);
    const share = () => ({
      busy: new BusyShare(time.clock),
      shared: { sentWorkMs: new Float64Array(targets), sinceMs: time.clock.nowMs() },
    });
    const many = Array.from({ length: routers }, share);
    const look = ({ busy, shared }: ReturnType<typeof share>): void => {
      for (let target = 0; target < targets; target++) busy.receive(target, shared, time.clock.nowMs());
    };
    const run = (durationMs: number): void => {
      const untilMs = time.clock.nowMs() + durationMs;
      while (time.clock.nowMs() < untilMs) {
        const [by, target, workMs] = [random.integer(routers), random.integer(targets), random.integer(90)];
        look(many[by]!);
        many[by]!.busy.sent(target, workMs);
        one.sent(target, workMs);
        for (const [at, { shared }] of many.entries()) if (at !== by) shared.sentWorkMs[target]! += workMs;
        time.advance(60 * random.float());
      }
    };
    const of = (busy: BusyShare): number => {
      let sent = 0;
      for (let target = 0; target < targets; target++) sent += busy.sentTo(target);
      return busy.of(sent, targets);
    };
    const errorOf = (router: ReturnType<typeof share>): number => {
      look(router);
      return Math.abs(of(router.busy) / of(one) - 1);
    };
    return { run, many, errorOf, share };
  }

  test("within 1 %, in the first minute and after it", () => {
    const { run, many, errorOf } = fleetOf();
    for (const durationMs of [5_000, 10_000, 45_000, 300_000]) {
      run(durationMs);
      for (const router of many) expect(errorOf(router), `after ${durationMs} ms more`).toBeLessThan(0.01);
    }
  });

  test("one that begins anew goes by what it has heard since, within 15 % after ten seconds, and 2 after five minutes", () => {
    const { run, many, errorOf, share } = fleetOf();
    run(120_000);
    many[3] = share();
    for (const [durationMs, most] of [
      [10_000, 0.15],
      [290_000, 0.02],
    ] as const) {
      run(durationMs);
      expect(errorOf(many[3]!), `after ${durationMs} ms more`).toBeLessThan(most);
      expect(errorOf(many[0]!)).toBeLessThan(0.01);
    }
  });
});
