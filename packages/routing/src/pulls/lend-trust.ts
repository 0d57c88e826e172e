import type { Clock, Meter } from "@espalier/core";
import type { RatedTarget } from "../work/prefill-rates.ts";

/** How far pulls from an engine bring what they should. */
export interface LendTrust {
  /** The share of the latest pulls from a target that brought what was expected, 0 to 1; 1 until one failed. */
  of(target: RatedTarget): number;
  /**
   * A pull was asked for, and the request is over.
   *
   * @param tokens what it should have brought
   * @param isBrought undefined if the engine did not tell
   */
  ended(source: RatedTarget, tokens: number, isBrought: boolean | undefined): void;
}

/** What one pull changes. Two failures in a row halve the trust. */
const gain = 0.3;
/** A failure of this age counts by half, so that an engine that was full or restarted is tried again. */
const halfLifeMs = 30_000;
/** Bound of targets with a record; those beyond it are trusted. */
export const maxLenders = 4_096;

interface Lender {
  readonly key: string;
  distrust: number;
  atMs: number;
}

export function createLendTrust(clock: Clock, meter: Meter): LendTrust {
  const lenders: (Lender | undefined)[] = [];
  const pulls = meter.counter(
    "espalier_kv_pulls_total",
    "Requests that pulled KV blocks from another engine, by the cached tokens of the answer: " +
      "hit, miss, or unknown without a report of the engine.",
    ["outcome"],
  );
  const outcomes = {
    hit: pulls.series("hit"),
    miss: pulls.series("miss"),
    unknown: pulls.series("unknown"),
  };
  const pulledTokens = meter.counter("espalier_kv_pull_tokens_total", "Prompt tokens expected from pulls.").series();
  const distrustOf = ({ index, key }: RatedTarget): number => {
    const lender = lenders[index];
    return lender?.key === key ? lender.distrust * 0.5 ** ((clock.nowMs() - lender.atMs) / halfLifeMs) : 0;
  };
  return {
    of: (target) => 1 - distrustOf(target),
    ended(source, tokens, isBrought) {
      pulledTokens.add(tokens);
      if (isBrought === undefined) {
        outcomes.unknown.add();
        return;
      }
      outcomes[isBrought ? "hit" : "miss"].add();
      const before = distrustOf(source);
      if ((isBrought && before === 0) || source.index >= maxLenders) return;
      const distrust = before + gain * ((isBrought ? 0 : 1) - before);
      lenders[source.index] = { key: source.key, distrust, atMs: clock.nowMs() };
    },
  };
}

/** For routers whose engines pull nothing, and for dry runs without records. */
export const fullTrust: LendTrust = { of: () => 1, ended() {} };
