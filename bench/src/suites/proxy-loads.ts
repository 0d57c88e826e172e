import type { Load } from "../support/measure-load.ts";
import { prepareRequest, type StreamShape } from "../support/prepared-request.ts";

/** How large a run of the suite is. */
export interface ProxySizes {
  /** Of each closed loop, and of each paced one half more; the open loop of latencies takes twice that. */
  readonly durationMs: number;
  readonly warmUpMs: number;
  /** Distinct prompts sent for the growth of memory. */
  readonly growthRequests: number;
  /** Requests sent before memory is read the first time. */
  readonly growthWarmUpRequests: number;
  /** Turns sent to the router that tokenizes before they are measured. */
  readonly turnWarmUpRequests: number;
}

/** The loads of one run, in the order in which they are sent. */
export interface ProxyLoads {
  readonly growth: Load;
  readonly small: Load;
  readonly large: Load;
  readonly flood: Load;
  readonly paced: Load;
  readonly steady: Load;
  /** Turns of a long conversation, each with a new last message. */
  readonly turns: Load;
  /** Turns of an agent, with many tools. */
  readonly agentTurns: Load;
}

export const smallBodyBytes = 4_096;
export const largeBodyBytes = 49_152;
export const largeMessages = 20;
export const agentBodyBytes = 204_800;
export const agentMessages = 60;
export const agentTools = 30;
/** About 256 tokens of the shipped tokenizer. */
export const newTurnBytes = 640;
export const streamTokens = 48;
export const streamGapMs = 10;
export const concurrency = 32;
export const streamsPerSecond = 150;
export const steadyPerSecond = 300;

/** @param seed of the arrivals, the same for every system of a run */
export function proxyLoads(sizes: ProxySizes, seed: number): ProxyLoads {
  const { durationMs, growthRequests, growthWarmUpRequests, turnWarmUpRequests } = sizes;
  const warmUp = { durationMs: sizes.warmUpMs };
  const closed = { kind: "closed", concurrency } as const;
  const small = prepareRequest({ bodyBytes: smallBodyBytes, messages: 2 });
  const large = prepareRequest({ bodyBytes: largeBodyBytes, messages: largeMessages });
  const streamed = (stream: StreamShape) => prepareRequest({ bodyBytes: smallBodyBytes, messages: 2, stream });
  return {
    growth: {
      request: small,
      pace: closed,
      warmUp: { requests: growthWarmUpRequests },
      extent: { requests: growthRequests },
    },
    small: { request: small, pace: closed, warmUp, extent: { durationMs } },
    large: { request: large, pace: closed, warmUp, extent: { durationMs } },
    flood: { request: streamed({ tokens: streamTokens, gapMs: 0 }), pace: closed, warmUp, extent: { durationMs } },
    paced: {
      request: streamed({ tokens: streamTokens, gapMs: streamGapMs }),
      pace: { kind: "open", ratePerSecond: streamsPerSecond, seed },
      warmUp,
      extent: { durationMs: durationMs * 1.5 },
    },
    steady: {
      request: large,
      pace: { kind: "open", ratePerSecond: steadyPerSecond, seed },
      warmUp,
      extent: { durationMs: durationMs * 2 },
    },
    turns: {
      request: prepareRequest({
        bodyBytes: largeBodyBytes,
        messages: largeMessages + 1,
        lastMessageBytes: newTurnBytes,
      }),
      pace: closed,
      // The router that tokenizes has had no growth load before; V8 compiles what runs often some thousand requests late.
      warmUp: { requests: turnWarmUpRequests },
      extent: { durationMs },
    },
    agentTurns: {
      request: prepareRequest({
        bodyBytes: agentBodyBytes,
        messages: agentMessages + 1,
        lastMessageBytes: newTurnBytes,
        tools: agentTools,
      }),
      pace: closed,
      warmUp: { requests: turnWarmUpRequests },
      extent: { durationMs },
    },
  };
}
