import { type ByteReader, type ByteWriter, varint } from "@espalier/core";

/**
 * The numbers of a gauge, in their order in a frame. Those with a flag are only in frames that have it, because a target
 * has any of them: routers that do not count them send frames that older routers know.
 */
const flagOf = {
  inFlight: 0,
  pendingPrefillTokens: 0,
  decodeTokens: 0,
  pendingWorkMs: 0,
  activeTokens: 4,
  lendingTokens: 8,
  yieldingInFlight: 16,
} as const;

/** What one router has sent to one target and not seen end. Whole numbers from 0. */
export interface LoadGauge extends Readonly<Record<keyof typeof flagOf, number>> {
  readonly inFlight: number;
  /** Prompt tokens to be computed for requests that have not produced a token. */
  readonly pendingPrefillTokens: number;
  /** Context tokens of requests past their first token. */
  readonly decodeTokens: number;
  /** Milliseconds that the engine is expected to compute on those prompts. */
  readonly pendingWorkMs: number;
  /** Tokens in prompt blocks of all those requests, each block once; 0 where they are not counted. */
  readonly activeTokens: number;
  /** Tokens that the target is sending to other engines for those requests; 0 where they are not counted. */
  readonly lendingTokens: number;
  /** Of the requests in flight, those of classes that yield; 0 where they are not counted. */
  readonly yieldingInFlight: number;
}

/** The same numbers of many targets, by slot. */
export type GaugeColumns = { readonly [Name in keyof LoadGauge]: Float64Array };

export const gaugeNames = Object.keys(flagOf) as readonly (keyof LoadGauge)[];
export const gaugeFlags = Object.values(flagOf).reduce<number>((flags, flag) => flags | flag, 0);
/** Larger gauges are refused, so that the sums over all origins stay exact whole numbers. */
export const maxGaugeValue = 2 ** 40;

/** In the notation of PROTOCOL.md. */
export const gaugeLayout = Object.entries(flagOf)
  .map(([name, flag]) => `${name}:${varint(maxGaugeValue).layout}${flag === 0 ? "" : `?${flag}`}`)
  .join(" ");

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
  };
}

/** The gauge alone, of something with more in it. */
export function pickGauge(from: LoadGauge): LoadGauge {
  const { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs } = from;
  const { activeTokens, lendingTokens, yieldingInFlight } = from;
  return {
    inFlight,
    pendingPrefillTokens,
    decodeTokens,
    pendingWorkMs,
    activeTokens,
    lendingTokens,
    yieldingInFlight,
  };
}

export const idleGauge: LoadGauge = mapGauge(flagOf, () => 0);

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
    one.yieldingInFlight === other.yieldingInFlight
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
}

/** Flags of a frame with these gauges. */
export function gaugeFlagsOf(gauges: readonly LoadGauge[]): number {
  let flags = 0;
  for (const gauge of gauges) {
    if (gauge.activeTokens > 0) flags |= flagOf.activeTokens;
    if (gauge.lendingTokens > 0) flags |= flagOf.lendingTokens;
    if (gauge.yieldingInFlight > 0) flags |= flagOf.yieldingInFlight;
  }
  return flags;
}

export function writeGauge(writer: ByteWriter, gauge: LoadGauge, flags: number): void {
  writer.varint(gauge.inFlight);
  writer.varint(gauge.pendingPrefillTokens);
  writer.varint(gauge.decodeTokens);
  writer.varint(gauge.pendingWorkMs);
  if (flags & flagOf.activeTokens) writer.varint(gauge.activeTokens);
  if (flags & flagOf.lendingTokens) writer.varint(gauge.lendingTokens);
  if (flags & flagOf.yieldingInFlight) writer.varint(gauge.yieldingInFlight);
}

/** @throws RangeError */
export function readGauge(reader: ByteReader, flags: number): LoadGauge {
  return {
    inFlight: readValue(reader),
    pendingPrefillTokens: readValue(reader),
    decodeTokens: readValue(reader),
    pendingWorkMs: readValue(reader),
    activeTokens: flags & flagOf.activeTokens ? readValue(reader) : 0,
    lendingTokens: flags & flagOf.lendingTokens ? readValue(reader) : 0,
    yieldingInFlight: flags & flagOf.yieldingInFlight ? readValue(reader) : 0,
  };
}

function readValue(reader: ByteReader): number {
  const value = reader.varint();
  if (value > maxGaugeValue) throw new RangeError(`a gauge of ${value} is too large`);
  return value;
}
