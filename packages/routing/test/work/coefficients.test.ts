import { existsSync, readFileSync } from "node:fs";
import { createSeededRandom, type Random } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  addTransfers,
  createTransferCost,
  noTransfers,
  type TransferCost,
  type TransferSums,
} from "../../src/disaggregation/index.ts";
import { AnswerPace } from "../../src/work/answer-pace.ts";
import { FetchRates, priorFetch } from "../../src/work/fetch-rates.ts";
import { type LearnedTimes, slowTiers } from "../../src/work/learned-times.ts";
import { PoolWork } from "../../src/work/pool-work.ts";
import { PrefillRates, type PromptPart } from "../../src/work/prefill-rates.ts";
import { anyPrompt, type EngineTruth, measured, targetOf, usualEngine } from "./synthetic-engine.ts";

const goldenFile = new URL("../golden/coefficients.txt", import.meta.url);

/** One line of numbers by name. */
type Lines = [name: string, numbers: readonly number[]][];

/** What a stream of samples is like. `at` counts its samples. */
interface Stream {
  readonly name: string;
  readonly count: number;
  /** Factor of the true time of a sample. */
  readonly factorAt?: (at: number, random: Random) => number;
  /** All samples have the same features. */
  readonly isAlike?: boolean;
}

const streams: readonly Stream[] = [
  { name: "one sample", count: 1 },
  { name: "few samples", count: 5 },
  { name: "as many as are evaluated together", count: 16 },
  { name: "many samples", count: 300 },
  { name: "samples that are alike", count: 300, isAlike: true },
  { name: "engines that become slower", count: 600, factorAt: (at) => (at < 300 ? 1 : 3) },
  { name: "engines that become faster", count: 600, factorAt: (at) => (at < 300 ? 1 : 0.2) },
  {
    name: "one outlier in ten",
    count: 200,
    factorAt: (at, random) => (at % 10 === 3 ? 5 * 10 ** random.float() : 1),
  },
  { name: "an outlier first", count: 40, factorAt: (at) => (at === 0 ? 1_000 : 1) },
  { name: "no time at all", count: 100, factorAt: () => 0 },
  { name: "engines far slower than assumed", count: 100, factorAt: () => 50 },
];

function* samplesOf({ count, factorAt, isAlike = false }: Stream, seed: number) {
  const random = createSeededRandom(seed);
  const first = anyPrompt(random);
  for (let at = 0; at < count; at++) {
    const part = isAlike ? first : anyPrompt(random);
    yield { at, random, part, factor: factorAt?.(at, random) ?? 1 };
  }
}

const probes: readonly PromptPart[] = [
  { uncachedTokens: 100, matchedTokens: 0 },
  { uncachedTokens: 4_000, matchedTokens: 1_000 },
  { uncachedTokens: 30_000, matchedTokens: 0 },
];

/** Engine 3 is twice as slow as the others. */
const truthOf = (index: number): EngineTruth =>
  index === 3 ? { fixedMs: 24, msPerToken: 0.12, msPerTokenPair: 3e-6 } : usualEngine;

function teachPrefill(rates: PrefillRates, stream: Stream, seed: number): void {
  for (const { at, random, part, factor } of samplesOf(stream, seed)) {
    const index = random.integer(4);
    const { elapsedMs } = measured(truthOf(index), part, random);
    const sameStep = at % 25 === 7 ? [anyPrompt(random)] : [];
    rates.observe(targetOf(index), { ...part, elapsedMs: factor * elapsedMs, hasWaited: at % 5 === 4, sameStep });
  }
}

function prefillNumbers(rates: PrefillRates): readonly number[] {
  const { fit, ownFit } = rates;
  return [
    ...[fit.msPerKilotoken, fit.msPerMegapair, fit.fixedMs],
    ...[ownFit.msPerKilotoken, ownFit.msPerMegapair, ownFit.fixedMs],
    ...[0, 1, 2, 3].map((index) => rates.factorOf(targetOf(index))),
    ...probes.map((part) => rates.workMs(targetOf(3), part)),
    ...[rates.sums.weight, ...Array.from(rates.sums.matrix), ...Array.from(rates.sums.right)],
  ];
}

/** Milliseconds for a thousand tokens of each tier; engine 3 is four times as slow. */
const tierTruth = { cpu: 6, disk: 70, external: 25, peer: 12 };
const belief = priorFetch(0.08);

function teachFetches(rates: FetchRates, stream: Stream, seed: number): void {
  for (const { at, random, factor } of samplesOf(stream, seed)) {
    const index = random.integer(4);
    const tiers = stream.isAlike ? (["cpu"] as const) : slowTiers.filter(() => random.integer(2) === 0);
    const fetched = { cpu: 0, disk: 0, external: 0, peer: 0 };
    let fetchMs = 0;
    for (const tier of tiers) {
      fetched[tier] = stream.isAlike ? 4_000 : 500 + random.integer(8_000);
      fetchMs += (index === 3 ? 4 : 1) * tierTruth[tier] * (fetched[tier] / 1e3);
    }
    const computeMs = 20 + random.integer(80);
    const elapsedMs = factor * (fetchMs + computeMs) * (0.85 + 0.3 * random.float());
    rates.observe(targetOf(index), { fetched, elapsedMs, computeMs, atMs: at }, belief);
  }
}

function fetchNumbers(rates: FetchRates): readonly number[] {
  return slowTiers.flatMap((tier) => {
    const { weight, matrix, right } = rates.sums(tier);
    return [
      rates.own(tier, belief)?.msPerKilotoken ?? -1,
      ...[0, 3].map((index) => rates.msPerKilotoken(targetOf(index), tier, belief)),
      ...[weight, matrix[0]!, right[0]!],
    ];
  });
}

function teachAnswers(pace: AnswerPace, stream: Stream, seed: number): void {
  for (const { random, factor } of samplesOf(stream, seed)) {
    const tokens = stream.isAlike ? 128 : 2 + random.integer(500);
    pace.observe(tokens, factor * 22 * (tokens - 1) * (0.85 + 0.3 * random.float()));
  }
}

const answerNumbers = (pace: AnswerPace): readonly number[] => [
  pace.msPerToken,
  ...[pace.sums.weight, pace.sums.matrix[0]!, pace.sums.right[0]!],
];

/** Milliseconds of a transfer. */
type Line = (tokens: number) => number;
const usualLine: Line = (tokens) => 35 + 0.02 * tokens;

function teachTransfers(cost: TransferCost, stream: Stream, seed: number, line = usualLine): void {
  for (const { random, factor } of samplesOf(stream, seed)) {
    const tokens = stream.isAlike ? 4_000 : random.integer(32_000);
    cost.observe(tokens, factor * line(tokens) * (0.85 + 0.3 * random.float()));
  }
}

const transferNumbers = (cost: TransferCost): readonly number[] => [
  ...[cost.setupMs, cost.msPerToken],
  ...[0, 2_048, 8_192, 60_000].map((tokens) => cost.ms(tokens)),
  ...Object.values(cost.observed()),
];

function alone(): Lines {
  const lines: Lines = [];
  for (const [at, stream] of streams.entries()) {
    const rates = new PrefillRates();
    teachPrefill(rates, stream, at);
    lines.push([`prefill: ${stream.name}`, prefillNumbers(rates)]);
  }
  for (const [at, stream] of streams.entries()) {
    const rates = new FetchRates();
    teachFetches(rates, stream, 100 + at);
    lines.push([`fetches: ${stream.name}`, fetchNumbers(rates)]);
  }
  for (const [at, stream] of streams.entries()) {
    const pace = new AnswerPace();
    teachAnswers(pace, stream, 200 + at);
    lines.push([`answers: ${stream.name}`, answerNumbers(pace)]);
  }
  for (const [at, stream] of streams.entries()) {
    const cost = createTransferCost();
    teachTransfers(cost, stream, 300 + at);
    lines.push([`transfers: ${stream.name}`, transferNumbers(cost)]);
  }
  const many = streams.find(({ name }) => name === "many samples")!;
  for (const [name, line] of [
    ["of any length in the same time", () => 60],
    ["long ones in less time", (tokens) => 200 - tokens / 400],
    ["a pause before the first token", (tokens) => Math.max(0, tokens - 8_000) / 50],
  ] as [string, Line][]) {
    const cost = createTransferCost({ setupMs: 30, msPerToken: 0.02 });
    teachTransfers(cost, many, 320, line);
    lines.push([`transfers: ${name}`, transferNumbers(cost)]);
  }
  return lines;
}

interface Fleet {
  readonly time: VirtualTime;
  readonly here: PoolWork;
}

/** Routers with differently many and differently old samples, the third with engines as no other has. */
function report(routers: number, { time, here }: Fleet): void {
  const reports: LearnedTimes[] = [];
  for (let router = 0; router < routers; router++) {
    const work = new PoolWork(time.clock);
    const slow = router === 2 ? 9 : 1;
    teachPool(work, { name: "", count: 20 + 30 * router, factorAt: () => slow }, 400 + router);
    reports.push(work.learned);
    time.advance(45_000);
  }
  for (const [router, times] of reports.entries()) {
    const ageMs = (routers - router) * 45_000;
    const fetches = times.fetches.map((fetch) => ({ ...fetch, ageMs: fetch.ageMs + ageMs }));
    here.fleet.receive(`router-${router}`, { ...times, ageMs: times.ageMs + ageMs, fetches });
  }
}

function teachPool(work: PoolWork, stream: Stream, seed: number): void {
  teachPrefill(work.rates, stream, seed);
  teachFetches(work.fetches, stream, seed + 1);
  teachAnswers(work.pace, stream, seed + 2);
  if (stream.count > 0) work.fleet.learned();
}

function merged(routers: number, own: number): Lines {
  const time = createVirtualTime();
  time.advance(3_600_000);
  const here = new PoolWork(time.clock);
  teachPool(here, { name: "", count: own }, 500);
  time.advance(120_000);
  report(routers, { time, here });
  const linesOf = (name: string): Lines => [
    [`prefill of ${name}`, [here.fleet.routers, ...prefillNumbers(here.rates)]],
    [`fetches of ${name}`, fetchNumbers(here.fetches)],
    [`answers of ${name}`, answerNumbers(here.pace)],
  ];
  const name = `${routers} routers, ${own} samples here`;
  const before = linesOf(name);
  teachPool(here, { name: "", count: 30 }, 510);
  return [...before, ...linesOf(`${name}, 30 more`)];
}

function mergedTransfers(routers: number, own: number): Lines {
  const seen = Array.from({ length: routers }, (_, router) => {
    const cost = createTransferCost();
    teachTransfers(cost, { name: "", count: 3 + 4 * router }, 600 + router);
    return { sums: cost.observed(), share: 0.5 ** (router / 4) };
  });
  let others: TransferSums = noTransfers;
  const cost = createTransferCost(undefined, () => others);
  teachTransfers(cost, { name: "", count: own }, 650);
  others = addTransfers(seen);
  cost.refit();
  return [[`transfers of ${routers} routers, ${own} samples here`, transferNumbers(cost)]];
}

function render(lines: Lines): string {
  const text = (number: number): string => String(Number(number.toPrecision(12)));
  return lines.map(([name, numbers]) => `${name}: ${numbers.map(text).join(" ")}\n`).join("");
}

/** Replaces numbers by those of the golden file from which rounding alone may separate them. */
function withoutRounding(text: string, golden: string): string {
  const known = golden.split("\n");
  return text
    .split("\n")
    .map((line, row) => {
      const [words, goldenWords] = [line.split(" "), known[row]?.split(" ") ?? []];
      return words
        .map((word, at) => (isRounded(Number(word), Number(goldenWords[at])) ? goldenWords[at] : word))
        .join(" ");
    })
    .join("\n");
}

const isRounded = (one: number, other: number): boolean => Math.abs(one - other) <= 1e-9 * Math.abs(other);

test("estimators find the coefficients that they always found in these samples", async () => {
  const lines = alone();
  for (const own of [0, 5, 100]) {
    for (let routers = 1; routers <= 8; routers++) {
      lines.push(...merged(routers, own), ...mergedTransfers(routers, own));
    }
  }
  const golden = existsSync(goldenFile) ? readFileSync(goldenFile, "utf8") : "";
  await expect(withoutRounding(render(lines), golden)).toMatchFileSnapshot("../golden/coefficients.txt");
});
