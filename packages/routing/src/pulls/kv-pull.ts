import { type CandidateSet, matchedInAll, prefillMs } from "@espalier/policies";
import type { RoutingTarget } from "../routing-target.ts";
import type { LendTrust } from "./lend-trust.ts";

/** Blocks that the engine of a decision should fetch from another engine. */
export interface ChosenPull<Target extends RoutingTarget> {
  readonly source: Target;
  /** Tokens that the engine has itself; the pull begins where they end. */
  readonly fromTokens: number;
  /** 0 where the engine should have the blocks by then, and pulls only what it lacks. */
  readonly tokens: number;
  /** Expected milliseconds of the pull, and of computing these tokens instead. */
  readonly expectedMs: number;
  readonly computeMs: number;
  /** The request is sent: charges the source. */
  begin(): RunningPull<Target>;
}

/** One pull on its way. Every call is safe to repeat. */
export class RunningPull<Target extends RoutingTarget> {
  readonly #pull: ChosenPull<Target>;
  readonly #trust: LendTrust;
  readonly #endLending: () => void;
  #isOver = false;

  /** Charges the source. */
  constructor(pull: ChosenPull<Target>, trust: LendTrust) {
    this.#pull = pull;
    this.#trust = trust;
    this.#endLending = pull.source.load.lend(pull.tokens);
  }

  /** The prompt is computed, or the request is no longer at its engine. */
  release(): void {
    this.#endLending();
  }

  /**
   * @param cachedTokens cached tokens that the engine reports; undefined if it reports none or did not answer
   * @returns whether the blocks came; undefined if nobody knows
   */
  answered(cachedTokens: number | undefined): boolean | undefined {
    this.release();
    const { source, fromTokens, tokens } = this.#pull;
    if (tokens === 0) return undefined;
    const isBrought = cachedTokens === undefined ? undefined : cachedTokens >= fromTokens + tokens / 2;
    if (!this.#isOver) this.#trust.ended(source, tokens, isBrought);
    this.#isOver = true;
    return isBrought;
  }
}

/** The pull that belongs to a candidate; undefined if it has none. */
export function pullOf<Target extends RoutingTarget>(
  candidates: CandidateSet,
  index: number,
  targets: readonly Target[],
  { promptTokens, trust }: { readonly promptTokens: number; readonly trust: LendTrust },
): ChosenPull<Target> | undefined {
  const tokens = candidates.pulledTokens[index]!;
  if (Number.isNaN(candidates.pullFrom[index]!)) return undefined;
  const fromTokens = matchedInAll(candidates, index);
  const pull: ChosenPull<Target> = {
    source: targets[candidates.target[candidates.pullFrom[index]!]!]!,
    fromTokens,
    tokens,
    expectedMs: candidates.pullMs[index]!,
    computeMs:
      prefillMs(candidates, index, promptTokens, fromTokens) -
      prefillMs(candidates, index, promptTokens, fromTokens + tokens),
    begin: () => new RunningPull(pull, trust),
  };
  return pull;
}
