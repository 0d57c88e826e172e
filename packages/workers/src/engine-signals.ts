import type { Clock } from "@espalier/common";
import { type EngineDialect, type SignalValues, unknownSignals } from "./engine-dialects.ts";
import type { MetricsReading } from "./metrics-page.ts";

/** What an engine's own metrics last said. NaN means no signal; it never means zero. */
export interface EngineSignals extends Readonly<SignalValues> {
  /** Whose metrics they are; kept when the numbers are forgotten. */
  readonly dialect: EngineDialect | undefined;
  /** Requests that this router had in flight to the target when that scrape began; NaN without any. */
  readonly inFlightAtScrape: number;
  /** Milliseconds since the scrape that these numbers came from began; Infinity without any. */
  ageMs(): number;
}

/** Signals with the means to change them. */
export interface OwnedSignals extends EngineSignals {
  /**
   * @param sampledMs when the scrape began, on the monotonic clock
   * @param inFlight requests in flight to the target at that moment
   */
  accept(reading: MetricsReading, sampledMs: number, inFlight: number): void;
  forget(): void;
}

export function createEngineSignals(clock: Clock): OwnedSignals {
  let sampledMs = Number.NEGATIVE_INFINITY;
  const signals = {
    ...unknownSignals(),
    inFlightAtScrape: Number.NaN,
    dialect: undefined as EngineDialect | undefined,
    ageMs: () => clock.nowMs() - sampledMs,
    accept(reading: MetricsReading, atMs: number, inFlight: number): void {
      Object.assign(signals, reading.values);
      signals.inFlightAtScrape = inFlight;
      signals.dialect = reading.dialect;
      sampledMs = atMs;
    },
    forget(): void {
      Object.assign(signals, unknownSignals());
      signals.inFlightAtScrape = Number.NaN;
      sampledMs = Number.NEGATIVE_INFINITY;
    },
  };
  return signals;
}
