import { type Flagged, flagged, varint } from "@espalier/core";

/** Larger gauges are refused, so that the sums over all origins stay exact whole numbers. */
export const maxGaugeValue = 2 ** 40;
const value = varint(maxGaugeValue);

/**
 * Frames have these numbers only with a flag, because a target has any of them: routers that do not count them send frames
 * that older routers know. They are 0 where they are not counted.
 */
export const gaugeFlags = { activeTokens: 4, lendingTokens: 8, yieldingInFlight: 16, answers: 32 } as const;
const rare = (name: keyof typeof gaugeFlags): Flagged<number> => flagged(gaugeFlags[name], value, 0);

/**
 * The numbers of a gauge, in their order in a frame: what one router has sent to one target and not seen end. Whole numbers
 * from 0.
 */
export const gaugeFields = {
  inFlight: value,
  /** Prompt tokens to be computed for requests that have not produced a token. */
  pendingPrefillTokens: value,
  /** Context tokens of requests past their first token. */
  decodeTokens: value,
  /** Milliseconds that the engine is expected to compute on those prompts. */
  pendingWorkMs: value,
  /** Tokens in prompt blocks of all those requests, each block once. */
  activeTokens: rare("activeTokens"),
  /** Tokens that the target is sending to other engines for those requests. */
  lendingTokens: rare("lendingTokens"),
  /** Of the requests in flight, those of classes that yield. */
  yieldingInFlight: rare("yieldingInFlight"),
  /** Of the requests in flight, those past their first token. */
  answers: rare("answers"),
};

/** What one router has sent to one target and not seen end. */
export type LoadGauge = { readonly [Name in keyof typeof gaugeFields]: number };

/** The same numbers of many targets, by slot. */
export type GaugeColumns = { readonly [Name in keyof LoadGauge]: Float64Array };

export const gaugeNames = Object.keys(gaugeFields) as readonly (keyof LoadGauge)[];

/** Bytes of a gauge in a frame with all of its numbers. */
export const gaugeBytes = (gauge: LoadGauge): number =>
  gaugeNames.reduce((sum, name) => sum + Math.max(1, Math.ceil(Math.log2(gauge[name] + 1) / 7)), 0);

// Names are written out below, as each of these runs for each target of each frame: a loop over the names takes twice
// as long.

export function mapGauge<Value, Result>(
  gauge: { readonly [Name in keyof LoadGauge]: Value },
  map: (value: Value) => Result,
): { [Name in keyof LoadGauge]: Result } {
  return {
    inFlight: map(gauge.inFlight),
    pendingPrefillTokens: map(gauge.pendingPrefillTokens),
    decodeTokens: map(gauge.decodeTokens),
    pendingWorkMs: map(gauge.pendingWorkMs),
    activeTokens: map(gauge.activeTokens),
    lendingTokens: map(gauge.lendingTokens),
    yieldingInFlight: map(gauge.yieldingInFlight),
    answers: map(gauge.answers),
  };
}

/** The gauge alone, of something with more in it. */
export function pickGauge(from: LoadGauge): LoadGauge {
  const { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs } = from;
  const { activeTokens, lendingTokens, yieldingInFlight, answers } = from;
  return {
    inFlight,
    pendingPrefillTokens,
    decodeTokens,
    pendingWorkMs,
    activeTokens,
    lendingTokens,
    yieldingInFlight,
    answers,
  };
}

export const idleGauge: LoadGauge = mapGauge<unknown, number>(gaugeFields, () => 0);

export function isIdle(gauge: LoadGauge): boolean {
  return isSameGauge(gauge, idleGauge);
}

export function isSameGauge(one: LoadGauge, other: LoadGauge): boolean {
  return (
    one.inFlight === other.inFlight &&
    one.pendingPrefillTokens === other.pendingPrefillTokens &&
    one.decodeTokens === other.decodeTokens &&
    one.pendingWorkMs === other.pendingWorkMs &&
    one.activeTokens === other.activeTokens &&
    one.lendingTokens === other.lendingTokens &&
    one.yieldingInFlight === other.yieldingInFlight &&
    one.answers === other.answers
  );
}

/** Puts a gauge in place of another one that is in the sums. */
export function replaceInSums(sums: GaugeColumns, slot: number, was: LoadGauge, is: LoadGauge): void {
  sums.inFlight[slot]! += is.inFlight - was.inFlight;
  sums.pendingPrefillTokens[slot]! += is.pendingPrefillTokens - was.pendingPrefillTokens;
  sums.decodeTokens[slot]! += is.decodeTokens - was.decodeTokens;
  sums.pendingWorkMs[slot]! += is.pendingWorkMs - was.pendingWorkMs;
  sums.activeTokens[slot]! += is.activeTokens - was.activeTokens;
  sums.lendingTokens[slot]! += is.lendingTokens - was.lendingTokens;
  sums.yieldingInFlight[slot]! += is.yieldingInFlight - was.yieldingInFlight;
  sums.answers[slot]! += is.answers - was.answers;
}
