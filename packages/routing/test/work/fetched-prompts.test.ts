/** A pool learns what fetching takes from prompts that are sent, and tells others. */
import { createSeededRandom } from "@espalier/core";
import { createCandidateSet, createPolicy } from "@espalier/policies";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { createSeriesMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, expect, test } from "vitest";
import { createFleetLearning, publishMs } from "../../src/work/fleet-learning.ts";
import { sumsOfFetch } from "../../src/work/learned-times.ts";
import { PoolWork } from "../../src/work/pool-work.ts";
import { type ScriptedTarget, scriptedTarget } from "../scripted-target.ts";
import { nothingShared } from "../shared-load.ts";
import { teach, usualEngine } from "./synthetic-engine.ts";

const shared = nothingShared();
const noTokens = { cpu: 0, disk: 0, external: 0, peer: 0 };
const fetchMsPerKilotoken = 9;

let time: VirtualTime;
let target: ScriptedTarget;

beforeEach(() => {
  time = createVirtualTime();
  time.advance(1_000);
  target = scriptedTarget(0, "engine-a", { clock: time.clock });
});

/** A pool that knows what computing takes, and nothing of tiers. */
function newPool(): PoolWork {
  const work = new PoolWork(time.clock);
  teach(work.rates, 200, { random: createSeededRandom(7) });
  return work;
}

/** Sends a prompt of which so many tokens are to be fetched from CPU memory; `before` is in the engine's queue. */
function send(work: PoolWork, tokens: number, before?: () => void): void {
  const part = { uncachedTokens: 300, matchedTokens: tokens, fetched: { ...noTokens, cpu: tokens } };
  before?.();
  const prompt = work.prompt(target, part, shared);
  const ticket = target.load.begin({ promptTokens: tokens + 300, expectedOutputTokens: 1, workMs: prompt.sent() });
  const { fixedMs, msPerToken, msPerTokenPair } = usualEngine;
  const computeMs = fixedMs + 300 * msPerToken + 300 * (tokens + 150) * msPerTokenPair;
  time.advance(computeMs + (fetchMsPerKilotoken * tokens) / 1e3);
  prompt.firstToken();
  ticket.firstToken();
  ticket.end();
}

const sendMany = (work: PoolWork, count: number): void => {
  for (let at = 0; at < count; at++) send(work, 2_000 + 500 * (at % 9));
};

/** What decisions see of a prompt that the target has in CPU memory. */
function seen(work: PoolWork, of = target) {
  const candidates = createCandidateSet();
  const index = candidates.add(of.key, 0);
  candidates.matchedCpuTokens[index] = 1_000;
  work.snapshot(shared).describe(candidates, index, of);
  return createPolicy("predicted_latency").explain(
    { promptTokens: 2_000, expectedOutputTokens: 1, sessionKey: undefined, prefixKey: undefined },
    candidates,
  ).candidates[0]!;
}

test("what fetching takes is learned from first tokens, beside computing, and an explanation says it", () => {
  const work = newPool();
  const before = work.rates.fit;
  expect(seen(work).signals.cpuFetchMsPerToken).toBeNull();
  expect(seen(work).terms.fetch_ms).toBeCloseTo(250 * work.rates.msPerToken, 6);
  sendMany(work, 60);
  const { signals, terms } = seen(work);
  expect(Math.abs(signals.cpuFetchMsPerToken! / (fetchMsPerKilotoken / 1e3) - 1)).toBeLessThan(0.15);
  expect(terms.fetch_ms).toBeCloseTo(1_000 * signals.cpuFetchMsPerToken!, 9);
  expect([signals.diskFetchMsPerToken, signals.externalFetchMsPerToken]).toEqual([null, null]);
  // Prompts that were fetched say nothing of computing.
  expect(work.rates.fit).toEqual(before);
  expect(work.samples).toBe(work.rates.samples + 60);
});

test("a prompt that waits for another one, or beside which another is computed, tells nothing of fetching", () => {
  const work = newPool();
  for (let at = 0; at < 20; at++) {
    send(work, 5_000, () => {
      const other = target.load.begin({ promptTokens: 900, expectedOutputTokens: 1, workMs: 60 });
      time.scheduler.after(10, () => {
        other.firstToken();
        other.end();
      });
    });
  }
  expect(work.fetches.samples).toBe(0);
});

test("nothing is written of tiers in which a candidate holds nothing", () => {
  const work = newPool();
  sendMany(work, 20);
  const candidates = createCandidateSet();
  const index = candidates.add(target.key, 0);
  candidates.matchedTokens[index] = 1_000;
  work.snapshot(shared).describe(candidates, index, target);
  expect(candidates.cpuFetchMsPerToken[index]).toBeNaN();
});

function channels() {
  const listeners: ((note: Note) => void)[] = [];
  return (name: string): NoteChannel => ({
    post(key, bytes) {
      const origin = { router: name as Note["origin"]["router"], epoch: 1 };
      for (const listener of listeners) listener({ origin, key, bytes, ageMs: 0 });
      return true;
    },
    onNote(listener) {
      listeners.push(listener);
      return () => {};
    },
  });
}

test("a router that joins expects of tiers what the others have learned, before it has fetched anything", async () => {
  const channelOf = channels();
  const { clock, scheduler } = time;
  const learningOf = (name: string) =>
    createFleetLearning({ channel: channelOf(name), clock, scheduler, meter: createSeriesMeter() });
  const [first, joiner] = [learningOf("first"), learningOf("joiner")];
  await joiner.start();
  await first.start();
  const work = first.workOf("m");
  teach(work.rates, 200, { random: createSeededRandom(7) });
  sendMany(work, 60);
  time.advance(publishMs);
  const reported = joiner.workOf("m");
  expect(reported.fetches.samples).toBe(0);
  const expected = work.fetchMsPerToken(target, "cpu");
  expect(reported.fetchMsPerToken(target, "cpu") / expected).toBeCloseTo(1, 1);
  expect(reported.fetchMsPerToken(target, "disk")).toBeNaN();
  expect(reported.learned.fetches).toEqual([]);
  await first.stop();
  await joiner.stop();
});

test("what is seen here goes over what others say, when they are four times off or told it long ago", () => {
  const work = newPool();
  const tell = (msPerKilotoken: number): boolean =>
    work.fleet.receive("other", {
      ...{ ...work.learned, ageMs: 0 },
      fetches: [{ tier: "cpu", msPerKilotoken, sums: sumsOfFetch(msPerKilotoken, 40), ageMs: 0 }],
    });
  const expected = () => 1e3 * work.fetchMsPerToken(target, "cpu");
  expect(tell(90)).toBe(true);
  expect(expected()).toBeGreaterThan(60);
  sendMany(work, 100);
  tell(90);
  expect(expected()).toBeLessThan(1.2 * fetchMsPerKilotoken);
  tell(2.5 * fetchMsPerKilotoken);
  expect(expected()).toBeGreaterThan(1.1 * fetchMsPerKilotoken);
  time.advance(6_000_000);
  sendMany(work, 1);
  expect(expected()).toBeLessThan(1.1 * fetchMsPerKilotoken);
});
