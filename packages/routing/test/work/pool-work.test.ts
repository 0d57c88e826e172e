import { createSeededRandom } from "@espalier/core";
import { createCandidateSet, createPolicy, type Policy, type RequestFeatures } from "@espalier/policies";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, describe, expect, test } from "vitest";
import { createTargetSelector } from "../../src/select-target.ts";
import { PoolWork } from "../../src/work/pool-work.ts";
import { type ScriptedTarget, scriptedTarget } from "../scripted-target.ts";
import { nothingShared, type SharedColumns } from "../shared-load.ts";

let time: VirtualTime;
let work: PoolWork;
let target: ScriptedTarget;
let shared: SharedColumns;

beforeEach(() => {
  time = createVirtualTime();
  // So that no time is zero by chance.
  time.advance(1_000);
  work = new PoolWork(time.clock);
  target = scriptedTarget(0, "engine-a", { clock: time.clock });
  shared = nothingShared(2);
});

function backlogMs(of = target): number {
  const candidates = createCandidateSet();
  const index = candidates.add(of.key, 0);
  work.snapshot(shared).describe(candidates, index, of);
  return candidates.backlogMs[index]!;
}

const begin = (workMs: number) => target.load.begin({ promptTokens: 9_000, expectedOutputTokens: 5, workMs });

/** What other routers have at the target, as it was heard now. */
function hear(pendingWorkMs: number): void {
  const nowMs = time.clock.nowMs();
  if (pendingWorkMs < shared.pendingWorkMs[0]!) shared.computedMs[0] = nowMs;
  if (pendingWorkMs === 0) shared.pendingSinceMs[0] = Number.POSITIVE_INFINITY;
  else if (shared.pendingWorkMs[0] === 0) shared.pendingSinceMs[0] = nowMs;
  shared.pendingWorkMs[0] = pendingWorkMs;
}

describe("the backlog before anything is learned", () => {
  /*
   * Of eight engines that all computed their first prompt, the one that had begun last was believed to be done first, since what had
   * taken long was expected to take as long again there alone: everything went to it, and waited longest.
   */
  test("of engines of which nothing is learned is at each what the slowest has shown it to be", () => {
    const { fixedMs } = work.rates;
    const other = scriptedTarget(1, "engine-b", { clock: time.clock });
    begin(400);
    time.advance(1_500);
    expect(backlogMs()).toBe(1_500);
    other.load.begin({ promptTokens: 9_000, expectedOutputTokens: 5, workMs: 400 });
    time.advance(500);
    expect([backlogMs(), backlogMs(other)]).toEqual([2_000, 3_500]);
    // Half as much takes half as long.
    const small = scriptedTarget(2, "engine-c", { clock: time.clock });
    small.load.begin({ promptTokens: 4_000, expectedOutputTokens: 5, workMs: (400 - fixedMs) / 2 });
    time.advance(300);
    expect(backlogMs()).toBe(2_300);
    expect(backlogMs(small)).toBeCloseTo(2_000, 9);
    // With the first answer it is known better.
    work.rates.observe(target, { uncachedTokens: 9_000, matchedTokens: 0, elapsedMs: 2_000, hasWaited: false });
    expect(work.rates.isLearned).toBe(true);
    expect(backlogMs(other)).toBeLessThan(400);
  });
});

describe("the backlog", () => {
  test("is nothing where nothing was sent", () => {
    expect(backlogMs()).toBe(0);
    time.advance(10_000);
    expect(backlogMs()).toBe(0);
  });

  /** Answers from which the pool learns what a first token takes besides its prompt. @returns that */
  function learn(): number {
    const sample = { uncachedTokens: 1_000, matchedTokens: 0, elapsedMs: 140, hasWaited: false };
    for (let answer = 0; answer < 32; answer++) work.rates.observe(target, sample);
    return work.rates.fixedMs;
  }

  test("is what was sent, less the time since the step before it, and begins anew at each first token", () => {
    const fixedMs = learn();
    expect(fixedMs).toBeGreaterThan(5);
    const first = begin(400);
    expect(backlogMs()).toBe(400);
    time.advance(4);
    expect(backlogMs()).toBe(400);
    time.advance(96);
    begin(200);
    expect(backlogMs()).toBeCloseTo(500 + fixedMs, 9);
    time.advance(250);
    expect(backlogMs()).toBeCloseTo(250 + fixedMs, 9);
    // It took less time than was expected of it: 200 are left, and nothing of them is done.
    first.firstToken();
    expect(backlogMs()).toBe(200);
    time.advance(50);
    expect(backlogMs()).toBeCloseTo(150 + fixedMs, 9);
  });

  test("at an engine far away is what is left when the next prompt arrives there", () => {
    learn();
    const far = scriptedTarget(1, "far", { clock: time.clock, networkMs: 100 });
    const [first] = [400, 500].map((workMs) =>
      far.load.begin({ promptTokens: 9_000, expectedOutputTokens: 5, workMs }),
    );
    time.advance(500);
    first!.firstToken();
    // The second began half a round trip before that was heard, and goes on for as long while the next one is on its way.
    const near = scriptedTarget(2, "near", { clock: time.clock });
    near.load.begin({ promptTokens: 9_000, expectedOutputTokens: 5, workMs: 500 });
    time.advance(100);
    expect(backlogMs(far)).toBeCloseTo(backlogMs(near) - 100, 9);
  });

  test("is never less than a twentieth of what should be done and is not", () => {
    const fixedMs = learn();
    const first = begin(400);
    time.advance(380 + fixedMs);
    expect(backlogMs()).toBeCloseTo(20, 9);
    time.advance(20);
    expect(backlogMs()).toBe(20);
    time.advance(60_000);
    expect(backlogMs()).toBe(20);
    first.end();
    expect(backlogMs()).toBe(0);
  });

  test("of engines of which nothing is learned is expected to take as long again as it took", () => {
    const first = begin(400);
    const { fixedMs } = work.rates;
    time.advance(100);
    expect(backlogMs()).toBeCloseTo(300 + fixedMs, 9);
    time.advance(300);
    expect(backlogMs()).toBe(400);
    time.advance(2_000);
    expect(backlogMs()).toBe(2_400);
    first.firstToken();
    expect(backlogMs()).toBe(0);
  });

  test("runs from when an idle engine got work, not from its last first token", () => {
    const fixedMs = learn();
    begin(100).firstToken();
    time.advance(5_000);
    begin(300);
    expect(backlogMs()).toBe(300);
    time.advance(100);
    expect(backlogMs()).toBeCloseTo(200 + fixedMs, 9);
  });

  test("is that of all routers, and done by whoever's first token was the last", () => {
    const fixedMs = learn();
    hear(500);
    time.advance(100);
    const own = begin(200);
    expect(backlogMs()).toBeCloseTo(600 + fixedMs, 9);
    time.advance(100);
    expect(backlogMs()).toBeCloseTo(500 + fixedMs, 9);
    hear(300);
    expect(backlogMs()).toBe(500);
    time.advance(100);
    own.firstToken();
    expect(backlogMs()).toBe(300);
    time.advance(40);
    expect(backlogMs()).toBeCloseTo(260 + fixedMs, 9);
    hear(0);
    expect(backlogMs()).toBe(0);
  });

  test("of others is not known of a target beyond their columns: one past the last has its own alone", () => {
    hear(500);
    const beyond = scriptedTarget(2, "engine-c", { clock: time.clock });
    beyond.load.begin({ promptTokens: 10, expectedOutputTokens: 1, workMs: 30 });
    expect(backlogMs(beyond)).toBe(30);
    expect(backlogMs(scriptedTarget(1, "engine-b", { clock: time.clock }))).toBe(0);
  });
});

describe("a prompt", () => {
  const part = { uncachedTokens: 1_000, matchedTokens: 0 };
  const prompt = (of = part) => work.prompt(target, of, shared);
  /** Sends it, and tells its load. */
  const send = (of = part) => {
    const sent = prompt(of);
    const ticket = begin(sent.sent());
    return {
      answer() {
        sent.firstToken();
        ticket.firstToken();
      },
      sent,
      ticket,
    };
  };

  test("asks for what is believed, rounded up, and makes the pool busy", () => {
    expect(prompt().sent()).toBe(Math.ceil(125 + 0.5));
    expect(prompt({ uncachedTokens: 1, matchedTokens: 0 }).sent()).toBe(1);
    expect(prompt().expectedMs).toBeCloseTo(125 + 0.5, 9);
    expect(work.busy.of(work.busy.sentTo(target.index), 1)).toBeCloseTo((1.15 * 125.6) / 1_000, 2);
  });

  test("that is not sent costs nothing and teaches nothing", () => {
    const chosen = prompt();
    chosen.firstToken();
    expect(work.busy.of(work.busy.sentTo(target.index), 1)).toBe(0);
    expect(work.rates.samples).toBe(0);
  });

  test("teaches what an engine needs, from when it was sent to its first token", () => {
    for (let at = 0; at < 50; at++) {
      const { answer } = send();
      time.advance(300);
      answer();
      time.advance(100);
    }
    expect(work.rates.fixedMs + work.rates.workMs(target, part)).toBeCloseTo(300, -1);
    expect(work.rates.samples).toBe(50);
  });

  test("that waits for another one begins when that is computed", () => {
    for (let round = 0; round < 60; round++) {
      const first = send();
      const second = send();
      time.advance(300);
      first.answer();
      time.advance(300);
      second.answer();
      time.advance(50);
    }
    expect(work.rates.fixedMs + work.rates.workMs(target, part)).toBeCloseTo(300, -1);
    expect(work.rates.factorOf(target)).toBe(1);
  });

  test("at an engine far away teaches what the engine needs, and not what the way takes", () => {
    const far = scriptedTarget(1, "far", { clock: time.clock, networkMs: 100 });
    for (let round = 0; round < 60; round++) {
      const first = work.prompt(far, part, shared);
      const second = work.prompt(far, part, shared);
      const tickets = [first, second].map((sent) =>
        far.load.begin({ promptTokens: 9_000, expectedOutputTokens: 5, workMs: sent.sent() }),
      );
      // There and back once, since the second is computed while the first one's answer is on its way.
      time.advance(400);
      first.firstToken();
      tickets[0]!.firstToken();
      time.advance(300);
      second.firstToken();
      tickets[1]!.firstToken();
      time.advance(50);
    }
    expect(work.rates.fixedMs + work.rates.workMs(target, part)).toBeCloseTo(300, -1);
    expect(work.rates.factorOf(far)).toBe(1);
  });

  test("at an engine far away has waited only for what ended after it had come there", () => {
    const far = scriptedTarget(0, "far", { clock: time.clock, networkMs: 100 });
    /** Another router's prompt comes and goes while one of this router is under way. */
    const meet = (endsAfterMs: number) => {
      const sent = work.prompt(far, part, shared);
      const ticket = far.load.begin({ promptTokens: 9_000, expectedOutputTokens: 5, workMs: sent.sent() });
      hear(500);
      time.advance(endsAfterMs);
      hear(0);
      time.advance(400 - endsAfterMs);
      sent.firstToken();
      ticket.firstToken();
      time.advance(50);
    };
    for (let round = 0; round < 20; round++) meet(150);
    expect([...work.rates.differences()]).toEqual([]);
    for (let round = 0; round < 20; round++) meet(50);
    expect([...work.rates.differences()].map(({ key }) => key)).toEqual(["far"]);
  });

  test("that waits for another router's begins when that is heard to be computed", () => {
    for (let round = 0; round < 60; round++) {
      hear(500);
      const own = send();
      time.advance(700);
      hear(0);
      time.advance(300);
      own.answer();
    }
    expect(work.rates.fixedMs + work.rates.workMs(target, part)).toBeCloseTo(300, -1);
  });

  test("whose request fails before its first token teaches nothing, and is no work any more", () => {
    const { ticket } = send();
    time.advance(5_000);
    ticket.end();
    expect(work.rates.samples).toBe(0);
    expect(backlogMs()).toBe(0);
  });

  test("that is sent again to another target is learned of from then on", () => {
    const { ticket } = send();
    time.advance(30_000);
    ticket.end();
    const other = scriptedTarget(1, "engine-b", { clock: time.clock });
    const again = work.prompt(other, part, shared);
    again.sent();
    time.advance(130);
    again.firstToken();
    expect(work.rates.fixedMs + work.rates.workMs(other, part)).toBeLessThan(160);
  });

  test("teaches the pace of its answer, from its first token on", () => {
    const { sent, answer } = send();
    time.advance(300);
    answer();
    time.advance(1_000);
    sent.ended(51);
    expect(work.pace.msPerToken).toBe(20);
  });

  test("without a first token teaches no pace", () => {
    const { sent } = send();
    time.advance(300);
    sent.ended(51);
    expect(work.pace.msPerToken).toBe(0);
  });
});

describe("a decision", () => {
  const knowledge = { match() {}, describe() {} };
  const features: RequestFeatures = {
    ...{ promptTokens: 1_000, expectedOutputTokens: 10, sessionKey: undefined, prefixKey: undefined },
  };
  const none = { tried: new Set<string>() };
  const selectorOf = () =>
    createTargetSelector({
      random: createSeededRandom(1),
      knowledge: knowledge as unknown as Parameters<typeof createTargetSelector>[0]["knowledge"],
      shared,
    });

  test("sees what was learned: of each candidate its times and backlog, of all how busy they are and how they answer", () => {
    work.prompt(target, { uncachedTokens: 1_000, matchedTokens: 0 }, shared).sent();
    work.pace.observe(11, 200);
    const ticket = begin(400);
    time.advance(100);
    const policy = createPolicy("least_work");
    let seen: RequestFeatures | undefined;
    const backlogs: number[] = [];
    const noting: Policy = {
      ...policy,
      choose(request, candidates, random) {
        seen = request;
        backlogs.push(...candidates.backlogMs.subarray(0, candidates.count));
        expect(candidates.prefillMsPerToken[0]).toBe(work.rates.msPerToken);
        expect(candidates.prefillMsPerTokenPair[0]).toBe(work.rates.msPerTokenPair);
        return policy.choose(request, candidates, random);
      },
    };
    const other = scriptedTarget(1, "engine-b", { clock: time.clock });
    const pool = { policy: noting, work };
    const selection = selectorOf().select(pool, [target, other], { features, prompt: undefined }, none);
    expect(backlogs[0]).toBeCloseTo(300 + work.rates.fixedMs, 9);
    expect(backlogs[1]).toBe(0);
    expect(seen).toMatchObject({ busyShare: work.busy.of(work.busy.sentTo(target.index), 2) });
    const alone = seen?.busyShare ?? Number.NaN;
    expect(alone).toBeCloseTo((1.15 * 125.5) / 1_100 / 2, 3);
    expect(selection?.work?.sent()).toBe(
      Math.ceil(work.rates.workMs(other, { uncachedTokens: 1_000, matchedTokens: 0 })),
    );
    // What another router has sent counts from when it is heard of.
    shared.sentWorkMs[1] = 100;
    selectorOf().select(pool, [target, other], { features, prompt: undefined }, none);
    expect(seen?.busyShare).toBeGreaterThan(1.4 * alone);
    ticket.end();
  });

  test("of a pool that learns nothing sees nothing of it", () => {
    const policy = createPolicy("least_work");
    let seen: RequestFeatures | undefined;
    const noting: Policy = {
      ...policy,
      choose(request, candidates, random) {
        seen = request;
        expect(candidates.backlogMs[0]).toBeNaN();
        return policy.choose(request, candidates, random);
      },
    };
    const selection = selectorOf().select({ policy: noting }, [target], { features, prompt: undefined }, none);
    expect(seen).toBe(features);
    expect(selection?.work).toBeUndefined();
  });
});
