import type { Random } from "@espalier/common";
import {
  type CandidateSet,
  type ChoiceReason,
  createCandidateSet,
  type Policy,
  type RequestFeatures,
} from "@espalier/policies";
import type { SharedLoad } from "@espalier/replication";
import type { PeerTraffic } from "./peer-traffic.ts";
import type { PrefixKnowledge } from "./prefix/prefix-knowledge.ts";
import type { PromptBlocks } from "./prefix/prompt-blocks.ts";
import type { RoutingTarget } from "./routing-target.ts";

/** A decision: the target and why. */
export interface Selection<Target extends RoutingTarget> {
  readonly target: Target;
  readonly reason: ChoiceReason;
  /** Tokens of the prompt that the target is thought to hold in any tier. */
  readonly matchedTokens: number;
}

/** What a decision is made for. */
export interface RoutedRequest {
  readonly features: RequestFeatures;
  /** Undefined when the pool's policy does not look at prefixes. */
  readonly prompt: PromptBlocks | undefined;
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
  select<Target extends RoutingTarget>(
    pool: { readonly policy: Policy },
    targets: readonly Target[],
    request: RoutedRequest,
    restriction: Restriction,
  ): Selection<Target> | undefined;
}

/**
 * Decisions are synchronous, so one candidate set serves them all and nothing is allocated for it. An engine whose role
 * is `prefill` takes no whole request.
 */
export function createTargetSelector(
  random: Random,
  knowledge: PrefixKnowledge,
  shared: SharedLoad = noSharedLoad,
  traffic: PeerTraffic = noTraffic,
): TargetSelector {
  const candidates = createCandidateSet();
  return {
    select(pool, targets, { features, prompt }, { tried, onlyEngine }) {
      candidates.reset();
      if (prompt) knowledge.match(prompt);
      const unseenTokens = traffic.unseenTokens();
      for (let i = 0; i < targets.length; i++) {
        const target = targets[i]!;
        if (!target.usable || target.engine.role === "prefill") continue;
        if (tried.size > 0 && tried.has(target.key)) continue;
        if (onlyEngine !== undefined && target.engine.id !== onlyEngine) continue;
        const index = addCandidate(candidates, target, i);
        if (target.index < shared.inFlight.length) addShared(candidates, index, shared, target.index);
        if (prompt) knowledge.describe(target, prompt, candidates, index);
        if (unseenTokens > 0) candidates.own[index] = traffic.isOwn(target.index) ? 1 : 0;
      }
      if (candidates.count === 0) return undefined;
      const request = unseenTokens > 0 ? { ...features, unseenTokens } : features;
      const choice = pool.policy.choose(request, candidates, random);
      const matched = matchedTokens(candidates, choice.index);
      traffic.sent(Math.max(1, features.promptTokens - matched));
      return {
        target: targets[choice.target]!,
        reason: choice.reason,
        matchedTokens: matched,
      };
    },
  };
}

/** A router that shares nothing. */
const noSharedLoad: SharedLoad = {
  inFlight: new Float64Array(),
  pendingPrefillTokens: new Float64Array(),
  decodeTokens: new Float64Array(),
  outstandingOutputTokens: new Float64Array(),
  originCount: 0,
  ageMs: () => 0,
};

const noTraffic: PeerTraffic = { sent() {}, unseenTokens: () => 0, isOwn: () => false };

/** Adds what other routers have sent to a target. */
function addShared(candidates: CandidateSet, index: number, shared: SharedLoad, target: number): void {
  candidates.inFlight[index]! += shared.inFlight[target]!;
  candidates.pendingPrefillTokens[index]! += shared.pendingPrefillTokens[target]!;
  candidates.decodeTokens[index]! += shared.decodeTokens[target]!;
}

function matchedTokens(candidates: CandidateSet, index: number): number {
  return (
    candidates.matchedTokens[index]! +
    candidates.matchedCpuTokens[index]! +
    candidates.matchedDiskTokens[index]! +
    candidates.matchedExternalTokens[index]!
  );
}

function addCandidate(candidates: CandidateSet, target: RoutingTarget, position: number): number {
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
  return index;
}
