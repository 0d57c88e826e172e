import type { Load } from "./measure-load.ts";
import { prepareRequest, type RequestShape, type StreamShape } from "./prepared-request.ts";

/** How large a measurement is. */
export interface LoadSizes {
  /** Of each closed loop, and of each paced one half more; the open loop of latencies takes twice that. */
  readonly durationMs: number;
  /** Distinct 4 KB prompts that a fresh process gets first: the cold figures, and the warm-up of all others. */
  readonly coldRequests: number;
  /** Of these, sent before memory is read the first time. */
  readonly growthWarmUpRequests: number;
  /** Of 48 KB, sent before those that are measured. */
  readonly largeWarmUpRequests: number;
  /** Turns sent to the router that tokenizes before they are measured. */
  readonly turnWarmUpRequests: number;
}

/** Every load of a system, in the order in which they are sent. */
export const loadNames = [
  "first",
  "early",
  "growth",
  "small",
  "large",
  "long",
  "longest",
  "flood",
  "paced",
  "burst",
  "steady",
  "smallLate",
  "largeLate",
] as const;
export type LoadName = (typeof loadNames)[number];

export const smallBodyBytes = 4_096;
export const largeBodyBytes = 49_152;
export const largeMessages = 20;
/** Of coding agents, 61 and 121 messages: turns of one conversation, each with a new last message. */
export const longBodyBytes = 204_800;
export const longestBodyBytes = 409_600;
const longMessageBytes = 3_300;
const newAgentTurnBytes = 4_096;
/** Turns of an agent with many tools, for a router that tokenizes. */
export const agentMessages = 60;
export const agentTools = 30;
/** About 256 tokens of the shipped tokenizer. */
export const newTurnBytes = 640;
export const streamTokens = 48;
export const streamGapMs = 10;
export const concurrency = 32;
export const streamsPerSecond = 150;
export const steadyPerSecond = 300;
/** Streams that start at once. */
export const burstStreams = 64;
/** Requests after the start whose cost is told by itself. */
const firstRequests = 100;
const burstMs = 600;
/** Fewer fill the young generation too seldom to tell. */
const leastGarbageRequests = 6_000;

const closed = { kind: "closed", concurrency } as const;

/** @param seed of the arrivals, the same for every system of a run */
export function dataPathLoads(sizes: LoadSizes, seed: number): Readonly<Record<LoadName, Load>> {
  const { durationMs, coldRequests, growthWarmUpRequests } = sizes;
  const extent = { durationMs };
  const warmedBy = (requests: number) => ({ pace: closed, warmUp: { requests }, extent });
  const small = prepareRequest({ bodyBytes: smallBodyBytes, messages: 2 });
  const large = prepareRequest({ bodyBytes: largeBodyBytes, messages: largeMessages });
  const streamed = (stream: StreamShape) => prepareRequest({ bodyBytes: smallBodyBytes, messages: 2, stream });
  const paced = streamed({ tokens: streamTokens, gapMs: streamGapMs });
  const agent = (bodyBytes: number) =>
    prepareRequest({
      bodyBytes,
      messages: Math.floor(bodyBytes / longMessageBytes),
      lastMessageBytes: newAgentTurnBytes,
    });
  const few = Math.ceil(sizes.largeWarmUpRequests / 10);
  return {
    first: { request: small, pace: closed, extent: { requests: Math.min(firstRequests, growthWarmUpRequests) } },
    early: { request: small, pace: closed, extent: { requests: Math.max(1, growthWarmUpRequests - firstRequests) } },
    growth: { request: small, pace: closed, extent: { requests: coldRequests - growthWarmUpRequests } },
    small: { request: small, ...warmedBy(few) },
    large: { request: large, ...warmedBy(sizes.largeWarmUpRequests) },
    long: { request: agent(longBodyBytes), ...warmedBy(few) },
    longest: { request: agent(longestBodyBytes), ...warmedBy(few) },
    flood: { request: streamed({ tokens: streamTokens, gapMs: 0 }), ...warmedBy(few) },
    paced: {
      request: paced,
      pace: { kind: "open", ratePerSecond: streamsPerSecond, seed },
      // A stream takes half a second; until then connections are still being added.
      warmUp: { durationMs: durationMs / 2 },
      extent: { durationMs: durationMs * 1.5 },
    },
    burst: {
      request: paced,
      pace: { kind: "burst", streams: burstStreams },
      warmUp: { requests: burstStreams },
      extent: { requests: burstStreams * Math.max(1, Math.round((durationMs * 2) / burstMs)) },
    },
    steady: {
      request: large,
      pace: { kind: "open", ratePerSecond: steadyPerSecond, seed },
      warmUp: { durationMs: durationMs / 2 },
      extent: { durationMs: durationMs * 2 },
    },
    // Once more, of a process that has seen all kinds of requests and is full of what it remembers.
    smallLate: { request: small, ...warmedBy(few) },
    largeLate: { request: large, ...warmedBy(few) },
  };
}

/** 48 KB sent to a fresh process. */
export function coldLargeLoad(sizes: LoadSizes): Load {
  const request = prepareRequest({ bodyBytes: largeBodyBytes, messages: largeMessages });
  return { request, pace: closed, extent: { requests: Math.ceil(sizes.coldRequests / 9) } };
}

/** 4 KB sent to a process whose garbage is counted. */
export function garbageLoad({ coldRequests }: LoadSizes): Load {
  const request = prepareRequest({ bodyBytes: smallBodyBytes, messages: 2 });
  const extent = { requests: Math.max(leastGarbageRequests, Math.ceil(coldRequests / 3)) };
  return { request, pace: closed, warmUp: extent, extent };
}

/** Turns of a long conversation, each with a new last message, for a router that tokenizes. */
export const turnLoad = (sizes: LoadSizes): Load =>
  tokenizedLoad({ bodyBytes: largeBodyBytes, messages: largeMessages + 1 }, sizes);

/** Turns of an agent with many tools, for such a router. */
export const agentTurnLoad = (sizes: LoadSizes): Load =>
  tokenizedLoad({ bodyBytes: longBodyBytes, messages: agentMessages + 1, tools: agentTools }, sizes);

function tokenizedLoad(shape: RequestShape, { durationMs, turnWarmUpRequests }: LoadSizes): Load {
  return {
    request: prepareRequest({ ...shape, lastMessageBytes: newTurnBytes }),
    pace: closed,
    // V8 compiles what runs often some thousand requests late.
    warmUp: { requests: turnWarmUpRequests },
    extent: { durationMs },
  };
}
