import type { RunRecord, SimResult } from "../../src/run.ts";

interface ResultParts extends Partial<Omit<SimResult, "request">> {
  readonly request?: Partial<SimResult["request"]>;
  /** Milliseconds from sending to the first token. */
  readonly ttftMs?: number;
}

/** A request of 100 tokens in and 11 out, sent at 0, answered by engine 0: first token after 100 ms, the rest after 1 s. */
export function simResult({ request, ttftMs = 100, ...parts }: ResultParts): SimResult {
  const sentMs = parts.sentMs ?? 0;
  return {
    request: { index: 0, session: 0, turn: 0, promptTokens: 100, outputTokens: 11, ...request },
    sentMs,
    firstTokenMs: sentMs + ttftMs,
    endMs: sentMs + ttftMs + 1_000,
    cachedTokens: 0,
    error: undefined,
    router: 0,
    engine: 0,
    predictedTokens: 0,
    isSpill: false,
    ...parts,
  };
}

export function runRecord(parts: Partial<RunRecord>): RunRecord {
  return {
    results: [],
    samples: [],
    durationMs: 0,
    adapterLoads: Number.NaN,
    engineBusyMs: 0,
    linkBytes: Number.NaN,
    faultMs: undefined,
    bounds: { infiniteCache: Number.NaN, infiniteCacheFollowup: Number.NaN, pooledLru: Number.NaN },
    wallS: 1,
    ...parts,
  };
}

export function fleetSample(atMs: number, load: readonly number[]): RunRecord["samples"][number] {
  return { atMs, load: Float64Array.from(load), kvUse: new Float64Array(load.length) };
}
