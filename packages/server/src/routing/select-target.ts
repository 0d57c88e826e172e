import type { Random } from "@espalier/common";
import { type CandidateSet, type ChoiceReason, createCandidateSet, type RequestFeatures } from "@espalier/policies";
import type { Target } from "@espalier/workers";
import type { PoolSettings } from "./pools.ts";

/** A decision: the target and why. */
export interface Selection {
  readonly target: Target;
  readonly reason: ChoiceReason;
}

/** Narrows the targets of a pool for one request. */
export interface Restriction {
  /** Targets that have failed this request. */
  readonly tried: ReadonlySet<string>;
  /** The only engine that will do, for instance the one that holds a stored response. */
  readonly onlyEngine?: string | undefined;
}

/** Chooses the target of a request among a pool's usable ones. */
export interface TargetSelector {
  /** @returns undefined when no target is usable */
  select(
    pool: PoolSettings,
    targets: readonly Target[],
    request: RequestFeatures,
    restriction: Restriction,
  ): Selection | undefined;
}

/**
 * Decisions are synchronous, so one candidate set serves them all and nothing is allocated for it. An engine whose role
 * is `prefill` takes no whole request.
 */
export function createTargetSelector(random: Random): TargetSelector {
  const candidates = createCandidateSet();
  return {
    select(pool, targets, request, { tried, onlyEngine }) {
      candidates.reset();
      for (let i = 0; i < targets.length; i++) {
        const target = targets[i] as Target;
        if (!target.usable || tried.has(target.key) || target.engine.role === "prefill") continue;
        if (onlyEngine !== undefined && target.engine.id !== onlyEngine) continue;
        addCandidate(candidates, target, i);
      }
      if (candidates.count === 0) return undefined;
      const choice = pool.policy.choose(request, candidates, random);
      return { target: targets[choice.target] as Target, reason: choice.reason };
    },
  };
}

function addCandidate(candidates: CandidateSet, target: Target, position: number): void {
  const index = candidates.add(target.key, position);
  const { load, signals } = target;
  candidates.weight[index] = target.engine.weight;
  candidates.inFlight[index] = load.inFlight;
  candidates.pendingPrefillTokens[index] = load.pendingPrefillTokens;
  candidates.decodeTokens[index] = load.decodeTokens;
  candidates.running[index] = signals.running;
  candidates.waiting[index] = signals.waiting;
  candidates.kvUse[index] = signals.kvUse;
  candidates.kvCapacityTokens[index] = signals.blockSize * signals.blockCount;
  candidates.signalAgeMs[index] = signals.ageMs();
  candidates.inFlightAtSignal[index] = signals.inFlightAtScrape;
}
