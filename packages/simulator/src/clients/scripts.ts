import type { Random } from "@espalier/core";
import {
  type BoundedLogNormal,
  createZipf,
  exponential,
  geometric,
  logNormal,
  logUniform,
  ownRandom,
  type Zipf,
} from "./draws.ts";
import type { ScriptOf } from "./session.ts";

/** The name of the text before all others; documents are named from 1. */
const systemPrompt = 0;

/** Both ends inclusive. */
interface Range {
  readonly least: number;
  readonly most: number;
}

export interface ChatParameters {
  /** Number of groups with a shared beginning, which sessions use in turn; 0 for none. */
  readonly groups: number;
  readonly sharedTokens: number;
  /** Share of sessions that start with a group's beginning. */
  readonly sharedShare: number;
  readonly firstTokens: number;
  readonly newTokens: number;
  readonly outputTokens: number;
  /** Follow-ups of a session: a fixed number, or a geometric one with the given mean. */
  readonly followups: { readonly count: number } | { readonly mean: number };
  /** Mean of the exponential time before a follow-up, in milliseconds. */
  readonly thinkMeanMs: number;
  /** Whether the first message also waits such a time, so that users do not start in step. */
  readonly thinksFirst: boolean;
}

interface ChatOptions {
  readonly seed: number;
  readonly className?: string;
  /** Number of consecutive sessions from one group before the next group's turn; drawn uniformly when absent. */
  readonly groupSize?: number;
}

/** Conversations of people: message, answer, thought, message. */
export function chatScripts(parameters: ChatParameters, { seed, className, groupSize }: ChatOptions): ScriptOf {
  const { groups, sharedTokens, firstTokens, newTokens, outputTokens, followups, thinkMeanMs } = parameters;
  const named = className === undefined ? {} : { className };
  return (session) => {
    const random = ownRandom(seed, session);
    const turns = 1 + ("count" in followups ? followups.count : geometric(followups.mean, random));
    const isShared = groups > 0 && random.float() < parameters.sharedShare;
    const drawn = groups > 0 ? random.integer(groups) : 0;
    const group = groupSize === undefined ? drawn : Math.floor(session / groupSize) % groups;
    const beginning = isShared ? sharedTokens : 0;
    return {
      ...named,
      turns,
      expectedTokens: beginning + firstTokens + turns * outputTokens + (turns - 1) * newTokens,
      pauseMs: (turn) => (turn > 0 || parameters.thinksFirst ? exponential(thinkMeanMs, random) : 0),
      write(turn, conversation) {
        if (turn === 0) conversation.share(group, beginning);
        conversation.own(turn === 0 ? firstTokens : newTokens);
        return outputTokens;
      },
    };
  };
}

export interface AgentParameters {
  /** System prompt and tools, shared by all. */
  readonly systemTokens: number;
  readonly taskTokens: number;
  /** Requests per trajectory. */
  readonly steps: BoundedLogNormal;
  /** Length of a tool's result, before every step but the first. */
  readonly toolTokens: BoundedLogNormal;
  readonly outputTokens: number | BoundedLogNormal;
  /** Duration of a tool call, in milliseconds: uniform between the two, or log-normal. */
  readonly toolTimeMs: { readonly least: number; readonly most: number } | BoundedLogNormal;
  /** Number of consecutive trajectories with the same task; each has its own when absent. */
  readonly groupSize?: number;
}

/** Agents at work: a task, then step after step, each with the result of a tool. */
export function agentScripts(parameters: AgentParameters, seed: number): ScriptOf {
  const { systemTokens, taskTokens, toolTokens, outputTokens, toolTimeMs, groupSize } = parameters;
  const outputOf = (random: Random): number =>
    typeof outputTokens === "number" ? outputTokens : Math.round(logNormal(outputTokens, random));
  const toolTime = (random: Random): number =>
    "median" in toolTimeMs
      ? logNormal(toolTimeMs, random)
      : toolTimeMs.least + (toolTimeMs.most - toolTimeMs.least) * random.float();
  const meanOutput = typeof outputTokens === "number" ? outputTokens : outputTokens.median;
  return (trajectory) => {
    const random = ownRandom(seed, trajectory);
    const turns = Math.round(logNormal(parameters.steps, random));
    return {
      turns,
      expectedTokens: systemTokens + taskTokens + turns * (meanOutput + toolTokens.median),
      pauseMs: (turn) => (turn === 0 ? 0 : toolTime(random)),
      write(turn, conversation) {
        if (turn === 0) {
          conversation.share(systemPrompt, systemTokens);
          if (groupSize === undefined) conversation.own(taskTokens);
          else conversation.share(1 + Math.floor(trajectory / groupSize), taskTokens);
        } else {
          conversation.own(Math.round(logNormal(toolTokens, random)));
        }
        return outputOf(random);
      },
    };
  };
}

export interface ToolClusterParameters {
  /** Kinds of agents; each has its own beginning. */
  readonly clusters: readonly { readonly share: number; readonly tokens: number }[];
  /** What a session adds after its cluster's beginning. */
  readonly firstTokens: BoundedLogNormal;
  /** What each follow-up appends. */
  readonly newTokens: BoundedLogNormal;
  readonly outputTokens: BoundedLogNormal;
  /** Mean of a geometric number. */
  readonly meanFollowups: number;
  /** Mean of the exponential time before a follow-up. */
  readonly pauseMeanMs: number;
}

/** Calls from a few kinds of agents: long prompts with the same beginning, and short answers. */
export function toolClusterScripts(parameters: ToolClusterParameters, seed: number): ScriptOf {
  const { clusters, firstTokens, newTokens, outputTokens, meanFollowups, pauseMeanMs } = parameters;
  return (session) => {
    const random = ownRandom(seed, session);
    const cluster = drawCluster(clusters, random);
    const turns = 1 + geometric(meanFollowups, random);
    return {
      turns,
      expectedTokens: clusters[cluster]!.tokens + firstTokens.median + turns * (newTokens.median + outputTokens.median),
      pauseMs: (turn) => (turn === 0 ? 0 : exponential(pauseMeanMs, random)),
      write(turn, conversation) {
        if (turn === 0) conversation.share(cluster, clusters[cluster]!.tokens);
        conversation.own(Math.round(logNormal(turn === 0 ? firstTokens : newTokens, random)));
        return Math.round(logNormal(outputTokens, random));
      },
    };
  };
}

function drawCluster(clusters: ToolClusterParameters["clusters"], random: Random): number {
  let left = random.float() * clusters.reduce((sum, { share }) => sum + share, 0);
  for (const [at, { share }] of clusters.entries()) {
    left -= share;
    if (left < 0) return at;
  }
  return clusters.length - 1;
}

/** Single requests that each start with one of a few beginnings. */
export interface PromptParameters {
  /** Number of beginnings, all equally likely. */
  readonly prompts: number;
  readonly sharedTokens: number;
  readonly ownTokens: BoundedLogNormal;
  readonly outputTokens: BoundedLogNormal;
}

/** Chats of one message with a system prompt and random lengths. */
export function promptScripts(parameters: PromptParameters, seed: number): ScriptOf {
  const { prompts, sharedTokens, ownTokens, outputTokens } = parameters;
  return (request) => {
    const random = ownRandom(seed, request);
    const prompt = random.integer(prompts);
    const own = Math.round(logNormal(ownTokens, random));
    const output = Math.round(logNormal(outputTokens, random));
    return {
      turns: 1,
      expectedTokens: sharedTokens + own + output,
      pauseMs: () => 0,
      write(_, conversation) {
        conversation.share(prompt, sharedTokens);
        conversation.own(own);
        return output;
      },
    };
  };
}

interface PrefixGroupParameters {
  readonly groups: number;
  readonly prefixTokens: number;
  readonly ownTokens: number;
  readonly outputTokens: number;
}

/**
 * Single requests that each start with one of several long prefixes.
 *
 * @param groupOf the group of a request; drawn uniformly when absent
 */
export function prefixGroupScripts(
  { groups, prefixTokens, ownTokens, outputTokens }: PrefixGroupParameters,
  seed: number,
  groupOf = (request: number): number => ownRandom(seed, request).integer(groups),
): ScriptOf {
  return (request) => ({
    turns: 1,
    expectedTokens: prefixTokens + ownTokens + outputTokens,
    pauseMs: () => 0,
    write(_, conversation) {
      conversation.share(groupOf(request), prefixTokens);
      conversation.own(ownTokens);
      return outputTokens;
    },
  });
}

/** Log-uniform lengths. */
export interface LengthParameters {
  readonly inputTokens: Range;
  readonly outputTokens: Range;
}

/** Single requests that have nothing in common. */
export function lengthScripts({ inputTokens, outputTokens }: LengthParameters, seed: number): ScriptOf {
  return (request) => {
    const random = ownRandom(seed, request);
    const input = Math.round(logUniform(inputTokens, random));
    const output = Math.round(logUniform(outputTokens, random));
    return {
      turns: 1,
      expectedTokens: input + output,
      pauseMs: () => 0,
      write(_, conversation) {
        conversation.own(input);
        return output;
      },
    };
  };
}

export interface DocumentParameters {
  readonly systemTokens: number;
  readonly documents: number;
  /** Document r is requested with a probability proportional to 1 / r^zipf. */
  readonly zipf: number;
  /** Document lengths: log-uniform, and the same in every run with the same seed. */
  readonly documentTokens: Range;
  /** Distinct documents per prompt: uniform. */
  readonly perPrompt: Range;
  readonly questionTokens: Range;
  readonly outputTokens: Range;
}

/** Single questions about documents. The prompt contains the documents in the order of retrieval. */
export function documentScripts(parameters: DocumentParameters, seed: number): ScriptOf {
  const { systemTokens, documents, documentTokens, perPrompt, questionTokens, outputTokens } = parameters;
  const zipf = createZipf({ count: documents, exponent: parameters.zipf });
  const lengthOf = (document: number): number => Math.round(logUniform(documentTokens, ownRandom(~seed, document)));
  return (request) => {
    const random = ownRandom(seed, request);
    const found = findDocuments(zipf, Math.min(documents, uniform(perPrompt, random)), random, documents);
    const lengths = found.map(lengthOf);
    const question = uniform(questionTokens, random);
    const output = uniform(outputTokens, random);
    return {
      turns: 1,
      expectedTokens: systemTokens + lengths.reduce((sum, length) => sum + length, 0) + question + output,
      pauseMs: () => 0,
      write(_, conversation) {
        conversation.share(systemPrompt, systemTokens);
        for (const [place, document] of found.entries()) conversation.share(1 + document, lengths[place]!);
        conversation.own(question);
        return output;
      },
    };
  };
}

/** A document drawn twice is replaced by the next one of lower rank. */
function findDocuments(zipf: Zipf, count: number, random: Random, documents: number): readonly number[] {
  const found: number[] = [];
  for (let place = 0; place < count; place++) {
    let document = zipf.draw(random);
    while (found.includes(document)) document = (document + 1) % documents;
    found.push(document);
  }
  return found;
}

/** A whole number, both ends included. */
function uniform({ least, most }: Range, random: Random): number {
  return least + random.integer(most - least + 1);
}

export interface AdapterParameters {
  readonly adapters: number;
  /** Adapter r is requested with a probability proportional to 1 / r^zipf. */
  readonly zipf: number;
  /** The beginning shared by all prompts for one adapter. */
  readonly sharedTokens: number;
  readonly ownTokens: number;
  readonly outputTokens: number;
}

/** Single requests, each for one of many LoRA adapters. */
export function adapterScripts(parameters: AdapterParameters, seed: number): ScriptOf {
  const { adapters, sharedTokens, ownTokens, outputTokens } = parameters;
  const zipf = createZipf({ count: adapters, exponent: parameters.zipf });
  return (request) => {
    const rank = zipf.draw(ownRandom(seed, request));
    return {
      turns: 1,
      adapter: `adapter-${rank}`,
      expectedTokens: sharedTokens + ownTokens + outputTokens,
      pauseMs: () => 0,
      write(_, conversation) {
        conversation.share(rank, sharedTokens);
        conversation.own(ownTokens);
        return outputTokens;
      },
    };
  };
}
