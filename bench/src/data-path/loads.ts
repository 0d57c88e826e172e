import type { Load } from "./measure-load.ts";
import { prepareRequest, type RequestShape, type StreamShape } from "./prepared-request.ts";

/** The size of a measurement. */
export interface LoadSizes {
  /** Duration of each closed loop. Paced loads take one half more, the open loop of latencies twice that. */
  readonly durationMs: number;
  /** Distinct 4 KB prompts that a fresh process gets first: they give the cold figures and warm up all other loads. */
  readonly coldRequests: number;
  /** How many of these are sent before the first memory reading. */
  readonly growthWarmUpRequests: number;
  /** Requests of 48 KB sent before the measured ones. */
  readonly largeWarmUpRequests: number;
  /** Turns sent to the tokenizing router before the measured ones. */
  readonly turnWarmUpRequests: number;
}

/** Every load for a system, in order of sending. */
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
/** For coding agents, with 61 and 121 messages: turns of one conversation, each with a new last message. */
export const longBodyBytes = 204_800;
const longestBodyBytes = 409_600;
const longMessageBytes = 3_300;
const newAgentTurnBytes = 4_096;
/** Turns of an agent with many tools, for a router that tokenizes. */
export const agentMessages = 60;
export const agentTools = 30;
/** About 256 tokens in the shipped tokenizer. */
export const newTurnBytes = 640;
export const streamTokens = 48;
export const streamGapMs = 10;
export const concurrency = 32;
const streamsPerSecond = 150;
export const steadyPerSecond = 300;
/** Streams that start at once. */
export const burstStreams = 64;
/** Requests after the start whose cost is reported separately. */
const firstRequests = 100;
const burstMs = 600;
/** Fewer requests rarely fill the young generation. */
const leastGarbageRequests = 6_000;

/** What the loads are, in a report. */
export const loadParams = {
  ...{ concurrency, small_body_bytes: smallBodyBytes, large_body_bytes: largeBodyBytes },
  ...{ long_body_bytes: longBodyBytes, longest_body_bytes: longestBodyBytes, burst_streams: burstStreams },
  ...{ stream_tokens: streamTokens, stream_gap_ms: streamGapMs, streams_per_second: streamsPerSecond },
  steady_per_second: steadyPerSecond,
};

const closed = { kind: "closed", concurrency } as const;

/** @param seed of the arrivals, the same for every system in a run */
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
      // A stream takes half a second. Until the first ones end, connections are still being added.
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
    // Repeated with a process that has seen all kinds of requests and whose memory of requests is full.
    smallLate: { request: small, ...warmedBy(few) },
    largeLate: { request: large, ...warmedBy(few) },
  };
}

/** How long a cold process is watched. */
const coldMs = 5_000;
const coldRequests = 10_000;
const coldConnections = 64;

/** A load for a fresh process, and the figure that is taken of it: CPU time of a request in us, or a percentile of its total time in ms. */
interface ColdStartLoad {
  readonly load: Load;
  readonly of: "cpu" | number;
}

/** By the name of the figure. @param seed of the arrivals */
export function coldStartLoads(seed: number): Readonly<Record<string, ColdStartLoad>> {
  const small = prepareRequest({ bodyBytes: smallBodyBytes, messages: 2 });
  const large = prepareRequest({ bodyBytes: largeBodyBytes, messages: largeMessages });
  const first = { pace: closed, extent: { requests: coldRequests } };
  const many = { pace: { kind: "closed", concurrency: coldConnections }, extent: { durationMs: coldMs } } as const;
  const steady = { kind: "open", ratePerSecond: steadyPerSecond, seed } as const;
  return {
    first_10000_cpu_us_4k: { load: { request: small, ...first }, of: "cpu" },
    first_10000_cpu_us_48k: { load: { request: large, ...first }, of: "cpu" },
    first_5s_of_64_max_ms_4k: { load: { request: small, ...many }, of: 100 },
    first_5s_of_64_max_ms_48k: { load: { request: large, ...many }, of: 100 },
    first_5s_300rps_p99_ms_48k: { load: { request: large, pace: steady, extent: { durationMs: coldMs } }, of: 99 },
  };
}

/** 48 KB sent to a fresh process. */
export function coldLargeLoad(sizes: LoadSizes): Load {
  const request = prepareRequest({ bodyBytes: largeBodyBytes, messages: largeMessages });
  return { request, pace: closed, extent: { requests: Math.ceil(sizes.coldRequests / 9) } };
}

/** 4 KB sent to a process whose garbage is measured. */
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
    // V8 compiles hot code only after some thousand requests.
    warmUp: { requests: turnWarmUpRequests },
    extent: { durationMs },
  };
}
