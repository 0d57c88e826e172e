import type { Random } from "@espalier/core";
import { type BoundedLogNormal, createZipf, logNormal, ownRandom } from "./draws.ts";

/**
 * Sessions of a coding agent. The values are fitted to quantiles of the 355 sessions of callanjfox/kv-cache-tester
 * (commit 94f6046): requests per session, lengths, growth, times to think, and the share of a prompt that its session
 * had sent before.
 */
const parameters = {
  blockTokens: 64,
  /** Kinds of clients, by their tools; kind r is drawn with a probability proportional to 1 / r. Of each, some system prompts. */
  kinds: 14,
  systemsPerKind: 3,
  toolTokens: { median: 11_800, sigma: 0.14, least: 7_652, most: 17_261 },
  systemTokens: { median: 2_700, sigma: 0.35, least: 501, most: 6_765 },
  requests: { median: 43, sigma: 1.2, least: 3, most: 451 },
  /** What a first prompt has besides tools and system prompt. */
  firstTokens: { median: 10_000, sigma: 2.2, least: 200, most: 700_000 },
  newTokens: { median: 700, sigma: 1.3, least: 64, most: 120_000 },
  /** Blocks at the end of a prompt that the next one writes anew. */
  rewrittenBlocks: 1,
  /** Share of requests with a compacted context: what they keep, and their length, as shares of the prompt before. */
  compactedShare: 0.02,
  keptShare: { least: 0, most: 0.25 },
  compactedLength: { least: 0.3, most: 1.1 },
  mostTokens: 880_000,
  outputTokens: { median: 222, sigma: 1.08, least: 1, most: 18_195 },
  answerS: { median: 6.3, sigma: 0.8, least: 0.8, most: 300 },
  /** Pauses for tools, and for people. */
  toolS: { median: 7, sigma: 0.6, least: 0, most: 120 },
  peopleS: { median: 60, sigma: 1.9, least: 1, most: 77_589 },
  peopleShare: 0.33,
  /** Share of a session's requests whose answer calls for a sub-agent. */
  subAgentShare: 0.002,
  subAgentRequests: { median: 10, sigma: 0.5, least: 1, most: 40 },
  subAgentToolTokens: 7_771,
  subAgentSystemTokens: 735,
  subAgentTaskTokens: { median: 1_600, sigma: 0.6, least: 200, most: 8_000 },
} as const satisfies Readonly<
  Record<string, number | BoundedLogNormal | { readonly least: number; readonly most: number }>
>;

/** Consecutive names of blocks: the first, and how many. */
type Run = readonly [first: number, count: number];

/** A prompt as it grows. */
interface Context {
  readonly runs: readonly Run[];
  readonly tokens: number;
}

/**
 * Invents sessions, one line each, in the trace format `claude-code`. The same arguments give the same lines, and the
 * first n sessions are the same whatever the count.
 */
export function* agentTraceLines(options: {
  readonly sessions: number;
  readonly seed: number;
}): Generator<string, void, undefined> {
  const { sessions, seed } = options;
  const kinds = createZipf({ count: parameters.kinds, exponent: 1 });
  for (let number = 0; number < sessions; number++) {
    const random = ownRandom(seed, number);
    const prefix = prefixOf(kinds.draw(random), random, seed);
    yield JSON.stringify({
      id: `synthetic_${String(number + 1).padStart(4, "0")}`,
      models: ["synthetic"],
      ...{ block_size: parameters.blockTokens, hash_id_scope: "local" },
      ...{ tool_tokens: prefix.toolTokens, system_tokens: prefix.systemTokens },
      requests: sessionRequests(prefix, random),
    });
  }
}

interface Prefix {
  readonly toolTokens: number;
  readonly systemTokens: number;
}

/** The sizes of a kind's tools and of one of its system prompts are the same in all sessions. */
function prefixOf(kind: number, random: Random, seed: number): Prefix {
  const system = random.integer(parameters.systemsPerKind);
  return {
    toolTokens: Math.round(logNormal(parameters.toolTokens, ownRandom(~seed, kind))),
    systemTokens: Math.round(
      logNormal(
        parameters.systemTokens,
        ownRandom(~seed, parameters.kinds + kind * parameters.systemsPerKind + system),
      ),
    ),
  };
}

function sessionRequests({ toolTokens, systemTokens }: Prefix, random: Random): readonly object[] {
  const namer = createNamer();
  const requests: object[] = [];
  const count = Math.round(logNormal(parameters.requests, random));
  const prefixTokens = toolTokens + systemTokens;
  let context = namer.extend(noContext, prefixTokens + Math.round(logNormal(parameters.firstTokens, random)));
  let atS = 0;
  let thinkS = 0;
  for (let number = 0; number < count; number++) {
    const request = requestOf({ atS, thinkS, context }, random);
    requests.push(request);
    const endS = atS + request.api_time;
    thinkS = seconds(random.float() < parameters.peopleShare ? parameters.peopleS : parameters.toolS, random, 0);
    let nextS = endS + thinkS;
    if (number < count - 1 && random.float() < parameters.subAgentShare) {
      const { entry, resultS } = subAgent(endS, namer, random);
      requests.push(entry);
      nextS = resultS + thinkS;
    }
    atS = Math.round(nextS);
    context = grown(context, namer, random);
  }
  return requests;
}

const noContext: Context = { runs: [], tokens: 0 };

/** A next prompt: more of the same, or a compacted context when it is time for that, or too long. */
function grown(context: Context, namer: Namer, random: Random): Context {
  const added = Math.round(logNormal(parameters.newTokens, random));
  const isCompacted = random.float() < parameters.compactedShare || context.tokens + added > parameters.mostTokens;
  const kept = between(parameters.keptShare, random) * context.tokens;
  const length = Math.min(1, between(parameters.compactedLength, random)) * context.tokens;
  if (!isCompacted) {
    const { blockTokens, rewrittenBlocks } = parameters;
    const keptTokens =
      Math.max(0, Math.floor(context.tokens / blockTokens) - rewrittenBlocks * random.integer(2)) * blockTokens;
    return namer.extend(cut(context, keptTokens), context.tokens + added);
  }
  return namer.extend(cut(context, kept), Math.max(parameters.blockTokens, Math.round(length)));
}

/** A sub-agent with a prompt of its own. Its `t` is when its result was there, as in the traces that this imitates. */
function subAgent(callS: number, namer: Namer, random: Random): { readonly entry: object; readonly resultS: number } {
  const { subAgentToolTokens: toolTokens, subAgentSystemTokens: systemTokens } = parameters;
  const count = Math.round(logNormal(parameters.subAgentRequests, random));
  const requests: object[] = [];
  let context = namer.extend(
    noContext,
    toolTokens + systemTokens + Math.round(logNormal(parameters.subAgentTaskTokens, random)),
  );
  let atS = 0;
  let thinkS = 0;
  let endS = 0;
  for (let number = 0; number < count; number++) {
    const request = requestOf({ atS, thinkS, context }, random);
    requests.push(request);
    endS = atS + request.api_time;
    thinkS = seconds(parameters.toolS, random, 0);
    atS = Math.round(endS + thinkS);
    context = grown(context, namer, random);
  }
  const resultS = callS + endS;
  return {
    entry: {
      ...{ t: round(resultS, 3), type: "subagent", duration_ms: Math.round(endS * 1_000) },
      ...{ tool_tokens: toolTokens, system_tokens: systemTokens, requests },
    },
    resultS,
  };
}

function requestOf(
  { atS, thinkS, context }: { readonly atS: number; readonly thinkS: number; readonly context: Context },
  random: Random,
) {
  return {
    ...{ t: atS, type: "s", model: "synthetic", in: context.tokens },
    out: Math.round(logNormal(parameters.outputTokens, random)),
    hash_ids: context.runs,
    ...{ api_time: seconds(parameters.answerS, random, 2), think_time: thinkS },
  };
}

/** Names of a session's blocks: new text has new names. */
interface Namer {
  /** Continues a context, which ends with a whole block, to a length in tokens. */
  extend(context: Context, tokens: number): Context;
}

function createNamer(): Namer {
  let next = 1;
  return {
    extend({ runs, tokens: had }, tokens) {
      const total = Math.max(had, tokens);
      const blocks = runs.reduce((sum, [, count]) => sum + count, 0);
      const added = Math.floor(total / parameters.blockTokens) - blocks;
      if (added <= 0) return { runs, tokens: total };
      const first = next;
      next += added;
      const last = runs.at(-1);
      if (last !== undefined && last[0] + last[1] === first)
        return { runs: [...runs.slice(0, -1), [last[0], last[1] + added]], tokens: total };
      return { runs: [...runs, [first, added]], tokens: total };
    },
  };
}

/** The whole blocks within the first `tokens` tokens. */
function cut({ runs }: Context, tokens: number): Context {
  let left = Math.floor(tokens / parameters.blockTokens);
  const kept: Run[] = [];
  for (const [first, count] of runs) {
    if (left === 0) break;
    kept.push([first, Math.min(count, left)]);
    left -= Math.min(count, left);
  }
  return { runs: kept, tokens: kept.reduce((sum, [, count]) => sum + count, 0) * parameters.blockTokens };
}

function between({ least, most }: { readonly least: number; readonly most: number }, random: Random): number {
  return least + (most - least) * random.float();
}

const seconds = (distribution: BoundedLogNormal, random: Random, digits: number): number =>
  round(logNormal(distribution, random), digits);

const round = (value: number, digits: number): number => Math.round(value * 10 ** digits) / 10 ** digits;
