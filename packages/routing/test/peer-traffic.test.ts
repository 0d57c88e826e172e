import { asTargetIndex } from "@espalier/core";
import { createPeerTraffic } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";

const cold = (uncachedTokens: number) => ({ target: asTargetIndex(0), uncachedTokens, matchedTokens: 0 });
const matched = (target: number, uncachedTokens: number) => {
  return { target: asTargetIndex(target), uncachedTokens, matchedTokens: 1_000 };
};

function rig(originCount: number) {
  const time = createVirtualTime();
  const shared = { originCount, linkDelayMs: 0 };
  return { time, shared, traffic: createPeerTraffic(time.clock, shared, (target) => target % 2 === 1) };
}

/** Sends prompts of one size at an even rate for ten seconds. */
function sendEvenly({ time, traffic }: ReturnType<typeof rig>, tokens: number, everyMs: number): void {
  for (let at = 0; at < 10_000; at += everyMs) {
    traffic.sent(cold(tokens));
    time.advance(everyMs);
  }
}

describe("what other routers may have sent and not reported yet", () => {
  test("is nothing without them, and before anything was sent here", () => {
    const alone = rig(0);
    sendEvenly(alone, 1_000, 10);
    expect(alone.traffic.estimatedPeerTokens()).toBe(0);
    expect(rig(7).traffic.estimatedPeerTokens()).toBe(0);
  });

  test("is what this router sends in the time that load is late, for each of them", () => {
    const one = rig(1);
    sendEvenly(one, 1_000, 10);
    // 100 tokens a millisecond, of which 1 % are averaged away, for 6 ms.
    expect(one.traffic.estimatedPeerTokens()).toBeGreaterThan(570);
    expect(one.traffic.estimatedPeerTokens()).toBeLessThan(630);
    const seven = rig(7);
    sendEvenly(seven, 1_000, 10);
    expect(seven.traffic.estimatedPeerTokens()).toBeCloseTo(7 * one.traffic.estimatedPeerTokens(), 6);
  });

  test("falls when this router has nothing to do, and when the others go", () => {
    const here = rig(3);
    sendEvenly(here, 1_000, 10);
    const before = here.traffic.estimatedPeerTokens();
    here.time.advance(2_000);
    expect(here.traffic.estimatedPeerTokens()).toBeCloseTo(before / Math.E, 6);
    here.shared.originCount = 0;
    expect(here.traffic.estimatedPeerTokens()).toBe(0);
  });
});

describe("a burst", () => {
  test("of cold prompts is expected at the others too, but for the largest of them, until its loads are known", () => {
    const { traffic, time } = rig(7);
    traffic.sent(cold(500));
    const alone = traffic.estimatedPeerTokens();
    expect(alone).toBeCloseTo((7 * 500 * 6) / 2_000, 6);
    traffic.sent(cold(800));
    traffic.sent(cold(300));
    expect(traffic.estimatedPeerTokens()).toBeCloseTo(7 * 800, 6);
    time.advance(6);
    expect(traffic.estimatedPeerTokens()).toBeCloseTo((7 * 800) / Math.E, 6);
    time.advance(100);
    expect(traffic.estimatedPeerTokens()).toBeLessThan(7 * 1_600 * 0.003);
  });

  test("that follows a match is expected where that is, and nowhere else", () => {
    const { traffic, time } = rig(3);
    for (const tokens of [200, 900, 100]) traffic.sent(matched(4, tokens));
    expect(traffic.peerTokensAt(asTargetIndex(4))).toBeCloseTo(3 * 300, 6);
    expect(traffic.isBurstRendezvous(1_000)).toBe(true);
    expect(traffic.peerTokensAt(asTargetIndex(5))).toBe(0);
    expect(traffic.estimatedPeerTokens()).toBeCloseTo((3 * 1_200 * 6) / 2_000, 6);
    time.advance(12);
    expect(traffic.peerTokensAt(asTargetIndex(4))).toBeCloseTo((3 * 300) / Math.E ** 2, 6);
  });
});

describe("prompts are sent to one candidate", () => {
  test("where little is unreported, so that nothing else meets there, and in a burst; never without other routers", () => {
    const [here, alone] = [rig(7), rig(0)];
    expect([here.traffic.isBurstRendezvous(1_000), alone.traffic.isBurstRendezvous(1_000)]).toEqual([true, false]);
    for (const one of [here, alone]) sendEvenly(one, 1_000, 10);
    // 4,200 tokens are not reported yet.
    expect([here.traffic.isBurstRendezvous(1_000), here.traffic.isBurstRendezvous(100_000)]).toEqual([false, true]);
    for (let prompts = 0; prompts < 6; prompts++) here.traffic.sent(cold(1_000));
    expect(here.traffic.isBurstRendezvous(1_000)).toBe(true);
    here.time.advance(20);
    expect(here.traffic.isBurstRendezvous(1_000)).toBe(false);
  });

  test("where others are far away, only if little comes in the time that their load is on its way", () => {
    const { traffic, shared, ...rest } = rig(1);
    sendEvenly({ traffic, shared, ...rest }, 1_000, 100);
    expect(traffic.isBurstRendezvous(1_000)).toBe(true);
    shared.linkDelayMs = 50;
    expect(traffic.isBurstRendezvous(1_000)).toBe(false);
    expect(traffic.isBurstRendezvous(10_000)).toBe(true);
  });

  test("and a few prompts that happen to come together in even traffic are no burst", () => {
    const { traffic, ...rest } = rig(7);
    sendEvenly({ traffic, ...rest }, 1_000, 10);
    const even = traffic.estimatedPeerTokens();
    for (let prompts = 0; prompts < 2; prompts++) traffic.sent(matched(4, 1_000));
    expect(traffic.peerTokensAt(asTargetIndex(4))).toBe(0);
    expect(traffic.estimatedPeerTokens()).toBeLessThan(1.05 * even);
  });
});
