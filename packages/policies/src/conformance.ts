/**
 * The rules that every policy keeps, as a check that needs no test framework. Our own policies pass it, and a router
 * makes a small run of it for each policy of a plugin before it serves.
 */
import { type Clock, createSeededRandom, EspalierError, type Random, systemClock } from "@espalier/core";
import { type CandidateColumn, type CandidateSet, candidateColumns, createCandidateSet } from "./candidates.ts";
import type { Policy, RequestFeatures } from "./policy.ts";

export interface ConformanceOptions {
  /** Random candidate sets; 200 by default. */
  readonly runs?: number;
  /** 1 by default. */
  readonly seed?: number;
  /** Mean milliseconds that a choice among 64 candidates may take; 1 by default. Infinity does not measure. */
  readonly maxChoiceMs?: number;
  readonly clock?: Clock;
}

/** Thrown by `checkPolicy`. Its message names the broken rule, the run and the seed. */
export class ConformanceError extends Error {
  override readonly name = "ConformanceError";
}

/** Candidates of one drawn decision. */
const maxCandidates = 8;
/** Choices of each policy over one set: state that a policy keeps shows in the later ones. */
const turns = 4;
const timedCandidates = 64;
const timedChoices = 200;

/**
 * Checks a policy over random sets of candidates:
 *
 * - it chooses a candidate that is there, and none of weight 0 while another has a weight;
 * - what it chooses has a probability above 0 in its explanation, and the probabilities add up to 1;
 * - two policies with the same random numbers choose the same, whether or not they explain in between;
 * - it copes with one candidate, and with signals that are all unknown; without candidates it throws
 *   `no_engine_available`;
 * - it changes neither the candidates nor the request;
 * - it reads nothing of prompts and caches without `readsPrefixes`: routers would not look it up, and it would be 0;
 * - a choice takes no longer than `maxChoiceMs`.
 *
 * @param create makes a new policy, with no memory of earlier choices
 * @throws ConformanceError
 * @example
 * checkPolicy(() => composeCustomPolicy("short_queue", policies.short_queue));
 */
export function checkPolicy(create: () => Policy, options: ConformanceOptions = {}): void {
  const { runs = 200, seed = 1, maxChoiceMs = 1, clock = systemClock } = options;
  const { name } = create();
  const draw = createSeededRandom(seed);
  for (let run = 0; run < runs; run++) {
    const rule = (kept: boolean, broken: string): void => {
      if (!kept) throw new ConformanceError(`policy ${name}: ${broken} (run ${run}, seed ${seed})`);
    };
    const request = drawRequest(draw);
    // The first runs are the edges: nothing known, and a single candidate.
    const candidates = drawCandidates(draw, run === 0 ? 2 : run === 1 ? 1 : 1 + draw.integer(maxCandidates), run > 0);
    try {
      checkChoices(create, { request, candidates, seed: seed + run, rule });
    } catch (thrown) {
      if (thrown instanceof ConformanceError) throw thrown;
      rule(false, `throws ${thrown instanceof Error ? thrown.message : String(thrown)}`);
    }
  }
  checkEmpty(create());
  if (maxChoiceMs < Number.POSITIVE_INFINITY) checkTime(create(), draw, maxChoiceMs, clock);
}

interface Case {
  readonly request: RequestFeatures;
  readonly candidates: CandidateSet;
  readonly seed: number;
  readonly rule: (kept: boolean, broken: string) => void;
}

function checkChoices(create: () => Policy, { request, candidates, seed, rule }: Case): void {
  const [policy, twin] = [create(), create()];
  const [random, twinRandom] = [createSeededRandom(seed), createSeededRandom(seed)];
  const before = snapshot(candidates);
  const read = prefixesRead(create(), request, candidates, createSeededRandom(seed));
  rule(policy.readsPrefixes || read.length === 0, `reads ${read.join(", ")}; set its \`readsPrefixes: true\``);
  const { count, weight } = candidates;
  const isWeighted = weight.subarray(0, count).some((one) => one > 0);
  for (let turn = 0; turn < turns; turn++) {
    const explained = policy.explain(request, candidates).candidates;
    const { index, target } = policy.choose(request, candidates, random);
    rule(Number.isInteger(index) && index >= 0 && index < count, `chooses ${index} of ${count} candidates`);
    rule(target === candidates.target[index], `gives candidate ${index} the target ${target}`);
    rule(!isWeighted || weight[index]! > 0, `chooses candidate ${index}, which has weight 0`);
    const chances = explained.map(({ probability }) => probability);
    const sum = chances.reduce((total, one) => total + one, 0);
    rule(Math.abs(sum - 1) < 1e-9, `explains probabilities that add up to ${sum}`);
    rule(chances[index]! > 0, `chooses candidate ${index}, to which its explanation gives no chance`);
    const same = twin.choose(request, candidates, twinRandom).index;
    rule(same === index, `chooses ${index} and then ${same} with the same random numbers`);
    rule(snapshot(candidates) === before, "changes the candidates");
  }
}

/** What a router fills in only for policies that read prefixes. */
const prefixColumns: ReadonlySet<string> = new Set<CandidateColumn>([
  ...(["matchedTokens", "matchedCpuTokens", "matchedDiskTokens", "matchedExternalTokens"] as const),
  ...(["matchedPoolTokens", "matchAgeMs", "heldTokens", "lendableTokens"] as const),
  ...(["pulledTokens", "pullMs", "pullFrom"] as const),
]);

/** The names of what a choice reads of prompts and caches. */
function prefixesRead(
  policy: Policy,
  request: RequestFeatures,
  candidates: CandidateSet,
  random: Random,
): readonly string[] {
  const read = new Set<string>();
  const watched = <Watched extends object>(of: Watched, what: string, isNoted: (name: string) => boolean): Watched =>
    new Proxy(of, {
      get(target, name) {
        if (typeof name === "string" && isNoted(name)) read.add(`${what}.${name}`);
        return Reflect.get(target, name, target) as unknown;
      },
    });
  const isColumn = (name: string): boolean => prefixColumns.has(name);
  policy.choose(
    watched(request, "request", (name) => name === "prefixKey"),
    watched(candidates, "candidates", isColumn),
    random,
  );
  return [...read];
}

function checkEmpty(policy: Policy): void {
  const none = createCandidateSet();
  for (const ask of [
    () => policy.choose(drawRequest(createSeededRandom(1)), none, createSeededRandom(1)),
    () => policy.explain(drawRequest(createSeededRandom(1)), none),
  ]) {
    try {
      ask();
    } catch (thrown) {
      if (thrown instanceof EspalierError && thrown.code === "no_engine_available") continue;
    }
    throw new ConformanceError(`policy ${policy.name}: does not throw no_engine_available without candidates`);
  }
}

function checkTime(policy: Policy, draw: Random, maxChoiceMs: number, clock: Clock): void {
  const request = drawRequest(draw);
  const candidates = drawCandidates(draw, timedCandidates, true);
  const choose = (): void => {
    for (let choice = 0; choice < timedChoices; choice++) policy.choose(request, candidates, draw);
  };
  choose();
  const startMs = clock.nowMs();
  choose();
  const meanMs = (clock.nowMs() - startMs) / timedChoices;
  if (meanMs <= maxChoiceMs) return;
  throw new ConformanceError(
    `policy ${policy.name}: a choice among ${timedCandidates} candidates takes ${meanMs.toFixed(3)} ms, more than ${maxChoiceMs}`,
  );
}

/** Every column is a number of these kinds, or unknown. */
const amounts = [0, 0.25, 1, 2, 64, 500, 10_000];

function drawCandidates(draw: Random, count: number, isKnown: boolean): CandidateSet {
  const candidates = createCandidateSet(count);
  for (let position = 0; position < count; position++) {
    const index = candidates.add(`engine-${position}`, 100 + position);
    for (const column of isKnown ? candidateColumns : []) {
      if (draw.integer(2) === 0) continue;
      if (column === "weight") candidates.weight[index] = [0, 0.5, 1, 2][draw.integer(4)]!;
      else if (column === "kvUse") candidates.kvUse[index] = draw.float();
      else if (column === "adapterState" || column === "own") candidates[column][index] = draw.integer(2);
      else candidates[column][index] = amounts[draw.integer(amounts.length)]!;
    }
  }
  return candidates;
}

function drawRequest(draw: Random): RequestFeatures {
  const promptTokens = amounts[draw.integer(amounts.length)]! | 0;
  return Object.freeze({
    promptTokens,
    expectedOutputTokens: draw.integer(500),
    sessionKey: draw.integer(2) === 0 ? undefined : `session-${draw.integer(9)}`,
    prefixKey: draw.integer(2) === 0 ? undefined : draw.integer(2 ** 32),
    boundKey: draw.integer(3) === 0 ? `engine-${draw.integer(maxCandidates)}` : undefined,
    adapter: draw.integer(4) === 0 ? "an-adapter" : undefined,
  });
}

function snapshot({ count, key, target, ...set }: CandidateSet): string {
  const columns = candidateColumns.map((name) => set[name].subarray(0, count).join());
  return [count, key.slice(0, count).join(), target.subarray(0, count).join(), ...columns].join("\n");
}
