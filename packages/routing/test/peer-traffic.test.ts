import { createPeerTraffic } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";

function rig(originCount: number) {
  const time = createVirtualTime();
  const shared = { originCount };
  return { time, shared, traffic: createPeerTraffic(time.clock, shared, (target) => target % 2 === 1) };
}

/** Sends prompts of one size at an even rate for ten seconds. */
function sendEvenly({ time, traffic }: ReturnType<typeof rig>, tokens: number, everyMs: number): void {
  for (let at = 0; at < 10_000; at += everyMs) {
    traffic.sent(tokens);
    time.advance(everyMs);
  }
}

describe("what other routers may have sent unseen", () => {
  test("is nothing without them, and before anything was sent here", () => {
    const alone = rig(0);
    sendEvenly(alone, 1_000, 10);
    expect(alone.traffic.unseenTokens()).toBe(0);
    expect(rig(7).traffic.unseenTokens()).toBe(0);
  });

  test("is what this router sends in the time that load is late, for each of them", () => {
    const one = rig(1);
    sendEvenly(one, 1_000, 10);
    // 100 tokens a millisecond, of which 1 % are averaged away, for 6 ms.
    expect(one.traffic.unseenTokens()).toBeGreaterThan(570);
    expect(one.traffic.unseenTokens()).toBeLessThan(630);
    const seven = rig(7);
    sendEvenly(seven, 1_000, 10);
    expect(seven.traffic.unseenTokens()).toBeCloseTo(7 * one.traffic.unseenTokens(), 6);
  });

  test("falls when this router has nothing to do, and when the others go", () => {
    const here = rig(3);
    sendEvenly(here, 1_000, 10);
    const before = here.traffic.unseenTokens();
    here.time.advance(2_000);
    expect(here.traffic.unseenTokens()).toBeCloseTo(before / Math.E, 6);
    here.shared.originCount = 0;
    expect(here.traffic.unseenTokens()).toBe(0);
  });
});
