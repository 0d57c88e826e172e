import { createSeededRandom, type Random } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, describe, expect, test } from "vitest";
import { learningHalfLifeMs } from "../../src/work/fleet-sums.ts";
import { PoolWork } from "../../src/work/pool-work.ts";
import { anyPrompt, type EngineTruth, measured, targetOf, usualEngine } from "./synthetic-engine.ts";

let time: VirtualTime;
let random: Random;

beforeEach(() => {
  time = createVirtualTime();
  time.advance(1_000);
  random = createSeededRandom(3);
});

const part = { uncachedTokens: 4_000, matchedTokens: 1_000 };
const scaled = (by: number): EngineTruth => ({
  fixedMs: usualEngine.fixedMs * by,
  msPerToken: usualEngine.msPerToken * by,
  msPerTokenPair: usualEngine.msPerTokenPair * by,
});

/** A router that has seen so many prompts of each of four engines. */
function routerAfter(rounds: number, truthOf: (index: number) => EngineTruth = () => usualEngine): PoolWork {
  const work = new PoolWork(time.clock);
  seeMore(work, rounds, truthOf);
  return work;
}

function seeMore(work: PoolWork, rounds: number, truthOf: (index: number) => EngineTruth = () => usualEngine): void {
  for (let round = 0; round < rounds; round++) {
    for (let index = 0; index < 4; index++) {
      time.advance(50);
      work.rates.observe(targetOf(index), measured(truthOf(index), anyPrompt(random), random));
      work.fleet.learned();
    }
  }
}

const tell = (to: PoolWork, from: PoolWork, router = "other") => to.fleet.receive(router, from.learned);

describe("a router alone", () => {
  test("expects what it has learned itself, to the last bit", () => {
    const work = routerAfter(60, (index) => scaled(index === 2 ? 3 : 1));
    expect(work.rates.isLearned).toBe(true);
    const { msPerToken, fixedMs, isLearned } = new PoolWork(time.clock).rates;
    expect({ msPerToken, fixedMs, isLearned }).toEqual({ msPerToken: 0.125, fixedMs: 20, isLearned: false });
    expect(work.rates.ownFit).toEqual(work.rates.fit);
    work.pace.observe(11, 200);
    expect(work.pace.msPerToken).toBe(20);
  });
});

describe("a router that has just come", () => {
  test.each([0.1, 0.5, 1, 4])("expects what the others do, of engines that take %d times as long", (by) => {
    const others = [routerAfter(80, () => scaled(by)), routerAfter(80, () => scaled(by))] as const;
    const joiner = new PoolWork(time.clock);
    for (const [at, other] of others.entries()) tell(joiner, other, `router-${at}`);
    const mean = (others[0].rates.workMs(targetOf(0), part) + others[1].rates.workMs(targetOf(0), part)) / 2;
    expect(joiner.rates.workMs(targetOf(0), part) / mean).toBeCloseTo(1, 1);
    expect(Math.abs(joiner.rates.workMs(targetOf(0), part) / mean - 1)).toBeLessThan(0.02);
  });

  test("knows which target differs, and by how much, before it has sent anything there", () => {
    const other = routerAfter(120, (index) => scaled(index === 2 ? 3 : 1));
    const joiner = new PoolWork(time.clock);
    tell(joiner, other);
    for (let index = 0; index < 4; index++) {
      const expected = other.rates.workMs(targetOf(index), part);
      expect(joiner.rates.workMs(targetOf(index), part) / expected).toBeCloseTo(1, 1);
    }
    expect(joiner.rates.factorOf(targetOf(0))).toBe(1);
    expect(joiner.rates.factorOf(targetOf(2))).toBeGreaterThan(2);
    const [alike, slow] = [0, 2].map((index) => joiner.rates.firstTokenMs(targetOf(index), part));
    expect(slow! / alike!).toBe(joiner.rates.factorOf(targetOf(2)));
  });
});

describe("what a router sees itself", () => {
  test("goes over what others say as soon as it is enough to judge them by, when they are four times off", () => {
    const other = routerAfter(200, () => scaled(6));
    const work = new PoolWork(time.clock);
    tell(work, other);
    const truth = routerAfter(200).rates.workMs(targetOf(0), part);
    expect(work.rates.workMs(targetOf(0), part) / truth).toBeGreaterThan(5);
    for (let round = 0; round < 20; round++) {
      seeMore(work, 4);
      tell(work, other);
    }
    expect(work.fleet.routers).toBe(0);
    expect(Math.abs(work.rates.workMs(targetOf(0), part) / truth - 1)).toBeLessThan(0.1);
  });

  test("goes over what others have seen of other engines, and they go on as they do", () => {
    const other = routerAfter(200, () => scaled(3));
    const work = new PoolWork(time.clock);
    const truth = routerAfter(200).rates.workMs(targetOf(0), part);
    for (let round = 0; round < 40; round++) {
      tell(work, other);
      seeMore(work, 8);
    }
    expect(work.rates.workMs(targetOf(0), part) / truth).toBeLessThan(2.6);
  });

  test("long ago counts for less than what others see now", () => {
    const work = routerAfter(100, () => scaled(3));
    time.advance(8 * learningHalfLifeMs);
    const other = routerAfter(100);
    tell(work, other);
    const truth = other.rates.workMs(targetOf(0), part);
    expect(work.rates.workMs(targetOf(0), part) / truth).toBeLessThan(1.3);
  });
});

test("alike engines look alike to a router that knows some of them itself and some by others", () => {
  const other = routerAfter(150, () => scaled(1.15));
  const work = new PoolWork(time.clock);
  for (let round = 0; round < 200; round++) {
    work.rates.observe(targetOf(0), measured(usualEngine, anyPrompt(random), random));
  }
  tell(work, other);
  for (let index = 0; index < 4; index++) expect(work.rates.factorOf(targetOf(index))).toBe(1);
});

test("what is told is what the router has seen itself, nothing of what it was told", () => {
  const work = new PoolWork(time.clock);
  const before = work.learned;
  tell(
    work,
    routerAfter(100, () => scaled(5)),
  );
  expect(work.learned).toEqual(before);
  expect(work.learned.sums.weight).toBe(0);
  seeMore(work, 10);
  time.advance(7_000);
  expect(work.learned.ageMs).toBe(7_000);
  expect(work.learned.sums.weight).toBeGreaterThan(20);
  expect(work.learned.targets.map(({ key }) => key)).toEqual(["engine-0", "engine-1", "engine-2", "engine-3"]);
});
