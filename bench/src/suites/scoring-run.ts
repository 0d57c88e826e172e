import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Clock } from "@espalier/core";
import { createPolicy, type PolicyName } from "@espalier/policies";
import type { Figures } from "../support/median-spread.ts";
import { createScoringFleet, type ScoringFleet, type ScoringShape } from "./scoring-fleet.ts";
import { createNaiveSelector, type NaiveSelector } from "./scoring-naive.ts";

/** The policy that is omitted from names of figures. */
export const plainPolicy: PolicyName = "least_work";

/** The input of a figure; its name is part of the figure's name. */
export interface NamedShape extends Omit<ScoringShape, "otherBlocks"> {
  readonly name: string;
}

/**
 * Prompts rotate, so many that their blocks do not all fit in the processor's caches. Allocation is reported for the
 * first shape.
 */
export const usualShapes: readonly NamedShape[] = [
  { name: "12k_x96", promptTokens: 12_000, targets: 96, prompts: 8 },
  { name: "12k_x1000", promptTokens: 12_000, targets: 1_000, prompts: 4 },
  { name: "240k_x96", promptTokens: 240_000, targets: 96, prompts: 2 },
];

/** The amount of work in one run. */
export interface ScoringSizes {
  readonly decisions: number;
  readonly naiveDecisions: number;
  readonly otherBlocks: number;
  readonly shapes: readonly NamedShape[];
  /** Measured in addition to the plain one. */
  readonly policies: readonly PolicyName[];
}

export type ScoringRun = Readonly<Record<"espalier" | "naive", Figures>>;

/** Decisions per measurement: few enough that usually no collection falls into it. */
const allocatingDecisions = 50;
const allocationMeasurements = 15;
const noneTried = { tried: new Set<string>() };

/**
 * Measures decisions once: the look-up of a prompt whose hashes are given, the candidates, the policy.
 *
 * @throws Error when a decision is wrong, because no figure means anything then
 */
export function runScoringOnce(
  { decisions, naiveDecisions, otherBlocks, shapes, policies }: ScoringSizes,
  { clock, seed }: { readonly clock: Clock; readonly seed: number },
): ScoringRun {
  const espalier: Record<string, number> = {};
  const naive: Record<string, number> = {};
  for (const [number, { name, ...shape }] of shapes.entries()) {
    const fleet = createScoringFleet({ ...shape, otherBlocks }, seed);
    const selector = createNaiveSelector(fleet);
    check(fleet, selector);
    for (const policy of [plainPolicy, ...policies]) {
      const suffix = policy === plainPolicy ? "" : `_${policy}`;
      const decide = decisionsOf(fleet, policy);
      espalier[`decision_${name}_us_p50${suffix}`] = medianUs(decisions, decide, clock);
      if (number === 0) espalier[`alloc_bytes_per_decision${suffix}`] = bytesPerDecision(decide);
    }
    const decide = (turn: number): void => void selector.select(fleet.prompts[turn % fleet.prompts.length]!);
    naive[`decision_${name}_us_p50`] = medianUs(naiveDecisions, decide, clock);
    if (number === 0) naive.alloc_bytes_per_decision = bytesPerDecision(decide);
  }
  return { espalier, naive };
}

function decisionsOf({ selector, targets, prompts, work, nextRequest }: ScoringFleet, policy: PolicyName) {
  const pool = { policy: createPolicy(policy), work };
  const requests = prompts.map((prompt) => ({ features: featuresOf(prompt.tokens), prompt }));
  return (turn: number): number => {
    nextRequest();
    const selection = selector.select(pool, targets, requests[turn % requests.length]!, noneTried);
    if (!selection) throw new Error("no engine was chosen");
    return selection.target.index;
  };
}

function featuresOf(promptTokens: number) {
  return { promptTokens, expectedOutputTokens: 256, sessionKey: "a session", prefixKey: 12_345 };
}

/** The warm-up takes as long as the measurement. */
function medianUs(count: number, decide: (turn: number) => unknown, clock: Clock): number {
  const timesUs = new Float64Array(count);
  for (let turn = 0; turn < count * 2; turn++) {
    const startMs = clock.nowMs();
    decide(turn);
    timesUs[turn % count] = (clock.nowMs() - startMs) * 1_000;
  }
  return timesUs.sort()[count >> 1]!;
}

/**
 * The median growth of heap and arrays over several measurements. The floor is the boxed numbers that machine code
 * returns.
 */
function bytesPerDecision(decide: (turn: number) => unknown): number {
  setFlagsFromString("--expose-gc");
  const collectGarbage = runInNewContext("gc") as () => void;
  const measured: number[] = [];
  for (let attempt = 0; attempt < allocationMeasurements; attempt++) {
    collectGarbage();
    const before = bytesInUse();
    for (let turn = 0; turn < allocatingDecisions; turn++) decide(turn);
    measured.push(Math.max(0, (bytesInUse() - before) / allocatingDecisions));
  }
  return measured.sort((one, other) => one - other)[allocationMeasurements >> 1]!;
}

function bytesInUse(): number {
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** The share of a prompt that near ties, and unreported requests from other routers, may account for. */
const leewayShare = 0.2;

/** Decisions for the least work must be among the least by the naive computation. */
function check(fleet: ScoringFleet, naive: NaiveSelector): void {
  const decide = decisionsOf(fleet, plainPolicy);
  const byWork = (prompt: ScoringFleet["prompts"][number]): number[] =>
    fleet.targets.map((target) => naive.workOf(target, prompt)).sort((one, other) => one - other);
  for (const [turn, prompt] of fleet.prompts.entries()) {
    naive.select(prompt);
    const chosen = fleet.targets[decide(turn)]!;
    const [least = 0] = byWork(prompt);
    const work = naive.workOf(chosen, prompt);
    if (work > least + leewayShare * prompt.tokens)
      throw new Error(`${chosen.key} has ${work} tokens to compute, another one ${least}`);
  }
}
