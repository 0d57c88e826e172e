import { createVirtualTime } from "@espalier/testing";
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
    of: (engines: number, routers: number) => share.of(share.sentTo(3), engines, routers),
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
  expect(busy.of(4, 1)).toBe(0);
  time.advance(600_000);
  expect(busy.of(4, 1)).toBe(0);
});

describe("at a constant load it is that load over the engines' time", () => {
  test.each([
    [300, 4, 1, 0.075],
    [300, 1, 1, 0.3],
    [700, 1, 1, 0.7],
    [100, 2, 8, 0.4],
  ])("%d ms each second on %d engines by each of %d routers: %d", (workMs, engines, routers, share) => {
    for (const durationMs of [10_000, 60_000, 600_000]) {
      const { busy } = busyAt({ workMs, everyMs: 1_000, durationMs });
      // Of the first seconds there is one less than the time that is taken to be seen.
      const tolerance = durationMs === 10_000 ? 0.12 : 0.03;
      expect(Math.abs(busy.of(engines, routers) / (caution * share) - 1)).toBeLessThan(tolerance);
    }
  });
});

test("the first prompts do not make an idle fleet look busy", () => {
  const { busy } = busyAt({ workMs: 100, everyMs: 1, durationMs: 1 });
  expect(busy.of(1, 1)).toBeCloseTo(caution * 0.1, 2);
});

test("it follows the load, three quarters of the way in a minute and a half", () => {
  const { busy, send, time } = busyAt({ workMs: 200, everyMs: 1_000, durationMs: 600_000 });
  send(84_000, 600);
  expect(busy.of(1, 1) / caution).toBeCloseTo(0.5, 1);
  time.advance(600_000);
  expect(busy.of(1, 1)).toBeLessThan(0.001);
});

test("it stays below 1, whatever is sent, and where no engine is left", () => {
  const { busy } = busyAt({ workMs: 5_000, everyMs: 1_000, durationMs: 60_000 });
  expect(busy.of(1, 1)).toBe(maxBusyShare);
  expect(busy.of(0, 100)).toBe(maxBusyShare);
  expect(busy.of(1_000, 1)).toBeCloseTo(caution * 0.005, 3);
  expect(maxBusyShare).toBeLessThan(1);
});

test("what other engines are sent makes nobody wait at those that are asked about", () => {
  const { share, send, time } = busyAt({ workMs: 300, everyMs: 1_000, durationMs: 600_000 });
  for (let second = 0; second < 600; second++) {
    share.sent(40, 800);
    send(1_000);
  }
  const [one, other] = [share.sentTo(3), share.sentTo(40)];
  expect(share.of(one, 1, 1)).toBeCloseTo(caution * 0.3, 1);
  expect(share.of(other, 1, 1)).toBe(maxBusyShare);
  expect(share.of(one + other, 2, 1)).toBeCloseTo(caution * 0.55, 1);
  expect(share.sentTo(4)).toBe(0);
  expect(share.sentTo(100_000)).toBe(0);
  time.advance(600_000);
  expect(share.of(share.sentTo(40), 1, 1)).toBeLessThan(0.001);
});

test("after hours it says the same of the last minutes", () => {
  const { share, send, busy } = busyAt({ workMs: 300, everyMs: 1_000, durationMs: 600_000 });
  const early = busy.of(1, 1);
  send(12 * 3_600_000);
  expect(busy.of(1, 1)).toBeCloseTo(early, 3);
  expect(Number.isFinite(share.sentTo(3))).toBe(true);
});
