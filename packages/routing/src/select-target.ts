import { type EngineId, kvPullProtocols, type Random } from "@espalier/core";
import {
  adapterState,
  type CandidateSet,
  type Choice,
  type ChoiceReason,
  createCandidateSet,
  hashString,
  matchedInAll,
  type Policy,
  planPulls,
  type RequestFeatures,
} from "@espalier/policies";
import { noSharedLoad, type SharedLoad } from "@espalier/shared-tree";
import type { CopyCredits } from "./copy-credits.ts";
import type { DecisionLog, Excluded, Exclusion } from "./decision-log.ts";
import type { PeerTraffic } from "./peer-traffic.ts";
import type { PrefixKnowledge } from "./prefix/prefix-knowledge.ts";
import type { PromptBlocks } from "./prefix/prompt-blocks.ts";
import { type ChosenPull, pullOf } from "./pulls/kv-pull.ts";
import { fullTrust, type LendTrust } from "./pulls/lend-trust.ts";
import type { RoutingTarget } from "./routing-target.ts";
import type { NamedSession, SessionBindings } from "./session-bindings.ts";
import type { DecisionSnapshot } from "./work/decision-snapshot.ts";
import type { FetchedTokens } from "./work/learned-times.ts";
import type { PoolWork, PromptWork } from "./work/pool-work.ts";

/** A decision: the target, and why it was chosen. */
export interface Selection<Target extends RoutingTarget> {
  readonly target: Target;
  readonly reason: ChoiceReason;
  /** Prompt tokens that the target need not compute: those it is believed to hold in any tier, and those it pulls. */
  readonly matchedTokens: number;
  /** What it should pull from another target's engine; undefined for nothing. */
  readonly pull: ChosenPull<Target> | undefined;
  /** Those of `matchedTokens` that it can only fetch from a pool. */
  readonly pooledTokens: number;
  /** Highest `matchedTokens` of all candidates. */
  readonly bestTokens: number;
  /** The prompt's work at the target; undefined in a pool that learns nothing. */
  readonly work: PromptWork | undefined;
  /** Prompt blocks to count in the target's load; undefined if the policy does not read active blocks. */
  readonly activeBlocks: PromptBlocks | undefined;
  /** Its number in the decision log; undefined if it is in none. */
  readonly logged: number | undefined;
  /** Targets that could not be chosen, if anybody asks; absent for none. */
  readonly excluded?: readonly Excluded[];
}

/** The targets of one model, as a decision needs them. */
export interface SelectablePool {
  readonly policy: Policy;
  /** Separates its sessions from those of other pools; absent if there is one pool. */
  readonly model?: string;
  /** Learned times of its engines; absent if nothing is learned. */
  readonly work?: PoolWork;
}

/** The request that a decision is made for. */
export interface RoutedRequest {
  readonly features: RequestFeatures;
  /** Undefined if the pool's policy does not read prefixes. */
  readonly prompt: PromptBlocks | undefined;
  /** Whether its answer is streamed, token by token; false by default. */
  readonly isStreamed?: boolean;
  /** Whether it can tell its engine to pull KV blocks from another one. */
  readonly canPull?: boolean;
}

/** Narrows the targets of a pool for one request. */
export interface Restriction<Target extends RoutingTarget = RoutingTarget> {
  /** Targets that have failed this request. */
  readonly tried: ReadonlySet<string>;
  /** The only engine that can serve it, for instance the one with a stored response. */
  readonly onlyEngine?: string | undefined;
  /** Whether a target accepts the request. By default all do, except those of role `prefill`. */
  readonly accepts?: (target: Target) => boolean;
  /** By key, why targets are not among those that may be chosen, for the decision log. */
  readonly excluded?: ReadonlyMap<string, Exclusion> | undefined;
  /** Called once the candidate set is complete, before the policy chooses. */
  readonly onMatched?: (() => void) | undefined;
}

/** Chooses a target for a request among the usable ones of a pool. */
export interface TargetSelector {
  /** @returns undefined if no target is usable */
  select<Target extends RoutingTarget>(
    pool: SelectablePool,
    targets: readonly Target[],
    request: RoutedRequest,
    restriction: Restriction<Target>,
  ): Selection<Target> | undefined;
  /**
   * Prompt tokens that the usable target with the most of them cached would compute.
   *
   * @returns undefined if the pool's policy does not read prefixes
   */
  uncachedTokens(targets: readonly RoutingTarget[], request: RoutedRequest): number | undefined;
}

/** What decisions read and write. Parts that are absent know nothing, and keep nothing. */
interface SelectorParts {
  readonly random: Random;
  readonly knowledge: PrefixKnowledge;
  /** Load of the other routers. */
  readonly shared?: SharedLoad | undefined;
  readonly traffic?: PeerTraffic | undefined;
  readonly sessions?: SessionBindings;
  readonly credits?: CopyCredits;
  readonly trust?: LendTrust;
  /** Milliseconds since any router last used the adapter at the engine; Infinity if that is not known. */
  readonly adapterUseAgeMs?: (engine: EngineId, adapter: string) => number;
  readonly log?: Pick<DecisionLog<unknown>, "add"> | undefined;
  /** Called for each target that a decision left out. */
  readonly onExcluded?: ((reason: string) => void) | undefined;
}

/** Decisions are synchronous, so they share one candidate set and allocate none. */
export function createTargetSelector(parts: SelectorParts): TargetSelector {
  const { random, knowledge, shared = noSharedLoad(), traffic = noTraffic, log, onExcluded } = parts;
  const isObserved = log !== undefined || onExcluded !== undefined;
  const { sessions = noSessions, credits = noCredits, trust = fullTrust, adapterUseAgeMs } = parts;
  const candidates = createCandidateSet();
  return {
    select(pool, targets, { features, prompt, canPull }, restriction) {
      const { accepts = takesWhole, onMatched } = restriction;
      const narrowed = { tried: restriction.tried, onlyEngine: restriction.onlyEngine, accepts };
      let skipped: Excluded[] | undefined;
      candidates.reset();
      const isPulling = prompt !== undefined && canPull === true;
      if (prompt) knowledge.match(prompt, isPulling);
      const estimatedPeerTokens = traffic.estimatedPeerTokens();
      const isBurst = traffic.isBurst();
      const hasPeers = shared.originCount > 0;
      let owned = 0;
      const snapshot = pool.work?.snapshot(shared);
      const activeBlocks = pool.policy.readsActiveBlocks ? prompt : undefined;
      for (let i = 0; i < targets.length; i++) {
        const target = targets[i]!;
        const why = whyNoCandidate(target, narrowed);
        if (why) {
          if (isObserved) {
            skipped ??= [];
            skipped.push({ key: target.key, reason: why });
          }
          continue;
        }
        const index = addCandidate(candidates, target, i);
        if (target.index < shared.inFlight.length) addShared(candidates, index, shared, target.index);
        if (activeBlocks) addActive(candidates, index, target, activeBlocks, shared);
        if (prompt) knowledge.describe(target, prompt, candidates, index);
        if (features.adapter !== undefined) addAdapter(candidates, index, target, features.adapter, adapterUseAgeMs);
        snapshot?.describe(candidates, index, target);
        if (isPulling) addPull(candidates, index, target, shared, trust);
        if (isBurst) addPeerEstimate(candidates, index, traffic.peerTokensAt(target.index));
        if (hasPeers && traffic.isOwn(target.index)) {
          candidates.own[index] = 1;
          owned += 1;
        }
      }
      onMatched?.();
      if (candidates.count === 0) return undefined;
      if (isPulling) planPulls(features.promptTokens, snapshot?.busyShare ?? 0, candidates);
      const session = sessionOf(pool, features);
      const boundKey = session && sessions.targetOf(session);
      if (session && pool.policy.readsSessions) addSessions(candidates, sessions);
      const isMeeting = prompt !== undefined && traffic.isBurstRendezvous(features.promptTokens);
      // Prompts that should meet at one target, whichever router has them, cannot stay with their router's own.
      const ownershipMs = isMeeting ? 0 : ownershipPriceMs(owned, shared.linkDelayMs);
      const bestTokens = prompt ? mostMatched(candidates) : 0;
      const coldKey = isMeeting ? coldKeyOf(prompt, bestTokens) : undefined;
      const sharedTokens = prompt && snapshot ? sharedTokensOf(prompt, bestTokens) : 0;
      const creditKey = prompt && sharedTokens > 0 ? creditKeyOf(prompt, sharedTokens, pool.model) : undefined;
      const creditPaidMs = creditKey === undefined ? 0 : credits.paidMs(creditKey);
      const request = withTraffic(features, snapshot, {
        boundKey,
        estimatedPeerTokens,
        ownershipMs,
        coldKey,
        sharedTokens,
        creditPaidMs,
      });
      const choice = pool.policy.choose(request, candidates, random);
      const excluded = isObserved ? allExcluded(skipped, restriction.excluded, candidates, choice) : noneExcluded;
      if (onExcluded) for (const { reason } of excluded) onExcluded(reason);
      const logged = log?.add(candidates, choice, excluded);
      if (creditKey !== undefined && choice.creditMs !== 0) {
        credits.add(creditKey, choice.creditMs, targets[choice.target]!.index);
      }
      const target = targets[choice.target]!;
      const held = matchedInAll(candidates, choice.index);
      const matched = held + candidates.pulledTokens[choice.index]!;
      const uncachedTokens = Math.max(1, features.promptTokens - matched);
      traffic.sent({ target: target.index, uncachedTokens, matchedTokens: held });
      if (session) sessions.sent(session, { target: target.key, ttlMs: pool.policy.bindingTtlMs });
      return {
        target,
        reason: choice.reason,
        matchedTokens: matched,
        pull: pullOf(candidates, choice.index, targets, { promptTokens: features.promptTokens, trust }),
        pooledTokens: candidates.matchedPoolTokens[choice.index]!,
        bestTokens,
        work: pool.work?.prompt(
          target,
          { uncachedTokens, matchedTokens: matched, fetched: fetchedOf(candidates, choice.index) },
          shared,
        ),
        activeBlocks,
        logged,
        excluded,
      };
    },
    uncachedTokens(targets, { features, prompt }) {
      if (!prompt) return undefined;
      candidates.reset();
      knowledge.match(prompt);
      for (let i = 0; i < targets.length; i++) {
        const target = targets[i]!;
        if (target.exclusion !== undefined) continue;
        knowledge.describe(target, prompt, candidates, candidates.add(target.key, i));
      }
      return Math.max(1, features.promptTokens - mostMatched(candidates));
    },
  };
}

/** Why a target is no candidate for a request; undefined for one that is. */
function whyNoCandidate<Target extends RoutingTarget>(
  target: Target,
  {
    tried,
    onlyEngine,
    accepts,
  }: Required<Pick<Restriction<Target>, "tried" | "accepts">> & Pick<Restriction, "onlyEngine">,
): Exclusion | undefined {
  const { exclusion } = target;
  if (exclusion !== undefined) return exclusion;
  if (!accepts(target)) return "role";
  if (tried.size > 0 && tried.has(target.key)) return "tried";
  return onlyEngine !== undefined && target.engine.id !== onlyEngine ? "stored_response" : undefined;
}

const noneExcluded: readonly Excluded[] = [];

/** What no candidate was made of, what admission left out, and what the policy's filters did. */
function allExcluded(
  skipped: Excluded[] | undefined,
  before: ReadonlyMap<string, Exclusion> | undefined,
  { count, key }: CandidateSet,
  { filteredBy }: Choice,
): readonly Excluded[] {
  if (!skipped && !filteredBy && (before === undefined || before.size === 0)) return noneExcluded;
  const excluded = skipped ?? [];
  for (const [target, reason] of before ?? []) excluded.push({ key: target, reason });
  for (let index = 0; filteredBy && index < count; index++) {
    const reason = filteredBy(index);
    if (reason !== undefined) excluded.push({ key: key[index]!, reason });
  }
  return excluded;
}

const takesWhole = ({ engine }: RoutingTarget): boolean => engine.role !== "prefill";

/** The session of a request, if the pool's policy reads it. */
function sessionOf(
  { policy, model = "" }: SelectablePool,
  { sessionKey, sessionScope }: RequestFeatures,
): NamedSession | undefined {
  return policy.bindingTtlMs > 0 && sessionKey ? { model, scope: sessionScope, key: sessionKey } : undefined;
}

interface Surroundings {
  /** Key of the target that the session is bound to. */
  readonly boundKey: string | undefined;
  readonly estimatedPeerTokens: number;
  readonly ownershipMs: number;
  readonly coldKey: number | undefined;
  /** Prompt tokens shared with other prompts, and the rent that those have paid. */
  readonly sharedTokens: number;
  readonly creditPaidMs: number;
}

/**
 * By how much cold prompts prefer a router's own targets to those of neighbours. Found in simulation:
 * `docs/decisions/0036-cold-prompts-stay-with-the-owner.md`.
 */
const usualOwnershipMs = 20;

/**
 * By how much cold prompts prefer a router's own targets. Near by, with one target of its own, a router has no choice among
 * what it knows best, so that there is nothing to prefer. A target of routers that are far away may have got a millisecond of work in
 * each that its load was on its way: `docs/decisions/0037-distance.md`.
 */
function ownershipPriceMs(owned: number, linkDelayMs: number): number {
  return owned === 0 ? 0 : usualOwnershipMs * (1 - 1 / owned) + linkDelayMs;
}

/** Adds what is known about other requests. Written out: spreading an object takes V8 microseconds. */
function withTraffic(
  features: RequestFeatures,
  snapshot: DecisionSnapshot | undefined,
  { boundKey, estimatedPeerTokens, ownershipMs, coldKey, sharedTokens, creditPaidMs }: Surroundings,
): RequestFeatures {
  if (!snapshot && ownershipMs === 0 && estimatedPeerTokens === 0 && coldKey === undefined && boundKey === undefined)
    return features;
  return {
    promptTokens: features.promptTokens,
    expectedOutputTokens: features.expectedOutputTokens,
    sessionKey: features.sessionKey,
    prefixKey: features.prefixKey,
    adapter: features.adapter,
    sloTtftMs: features.sloTtftMs,
    sloTpotMs: features.sloTpotMs,
    boundKey: boundKey ?? features.boundKey,
    estimatedPeerTokens: estimatedPeerTokens > 0 ? estimatedPeerTokens : features.estimatedPeerTokens,
    ownershipMs: ownershipMs > 0 ? ownershipMs : features.ownershipMs,
    coldKey: coldKey ?? features.coldKey,
    sharedTokens: sharedTokens > 0 ? sharedTokens : features.sharedTokens,
    creditPaidMs,
    busyShare: snapshot?.busyShare ?? features.busyShare,
  };
}

const noCredits: CopyCredits = { paidMs: () => 0, add() {} };

const noSessions: SessionBindings = { targetOf: () => undefined, count: () => 0, sent() {}, endSession() {} };

const noTraffic: PeerTraffic = {
  sent() {},
  estimatedPeerTokens: () => 0,
  isBurst: () => false,
  peerTokensAt: () => 0,
  isBurstRendezvous: () => false,
  isOwn: () => false,
};

/** Adds what a target can pull from others, and lend to them. Its matches must be written first. */
function addPull(
  candidates: CandidateSet,
  index: number,
  target: RoutingTarget,
  shared: SharedLoad,
  trust: LendTrust,
): void {
  const { kvPull } = target.engine;
  if (!kvPull) {
    candidates.lendableTokens[index] = 0;
    return;
  }
  candidates.pullProtocol[index] = 1 + kvPullProtocols.indexOf(kvPull.protocol);
  candidates.lendingTokens[index] = target.load.lendingTokens + (shared.lendingTokens[target.index] ?? 0);
  candidates.lendTrust[index] = trust.of(target);
}

/** Adds the load that other routers have published for a target. */
function addShared(candidates: CandidateSet, index: number, shared: SharedLoad, target: number): void {
  candidates.inFlight[index]! += shared.inFlight[target]!;
  candidates.pendingPrefillTokens[index]! += shared.pendingPrefillTokens[target]!;
  candidates.decodeTokens[index]! += shared.decodeTokens[target]!;
  candidates.answers[index]! += shared.answers[target]!;
}

/** Adds the live sessions of all routers. */
function addSessions({ count, key, sessions: counts }: CandidateSet, sessions: SessionBindings): void {
  for (let index = 0; index < count; index++) counts[index] = sessions.count(key[index]!);
}

/**
 * Adds the blocks of requests in flight. Other routers publish only the number of their blocks, so a block that several
 * routers have counts once for each.
 */
function addActive(
  candidates: CandidateSet,
  index: number,
  { load, index: slot }: RoutingTarget,
  prompt: PromptBlocks,
  shared: SharedLoad,
): void {
  candidates.activeTokens[index] = load.activeTokens + (shared.activeTokens[slot] ?? 0);
  candidates.newActiveTokens[index] = load.newActiveTokens(prompt);
}

/** Adds the estimated load that peers have sent and not published yet. */
function addPeerEstimate(candidates: CandidateSet, index: number, tokens: number): void {
  if (tokens === 0) return;
  candidates.pendingPrefillTokens[index]! += tokens;
  candidates.backlogMs[index]! += tokens * candidates.prefillMsPerToken[index]!;
}

/** The hash of the first block that no candidate holds: equal for all prompts that are cold from that block on. */
function coldKeyOf({ chain, blockCount, blockSize }: PromptBlocks, bestTokens: number): number | undefined {
  const block = Math.floor(bestTokens / blockSize);
  return block < blockCount ? chain[2 * block] : undefined;
}

function mostMatched(candidates: CandidateSet): number {
  let most = 0;
  for (let index = 0; index < candidates.count; index++) most = Math.max(most, matchedInAll(candidates, index));
  return most;
}

/** Prompt tokens that the candidate must fetch from slower memory, or from another engine, to its GPU. */
function fetchedOf(candidates: CandidateSet, index: number): FetchedTokens | undefined {
  const cpu = candidates.matchedCpuTokens[index]!;
  const disk = candidates.matchedDiskTokens[index]!;
  const external = candidates.matchedExternalTokens[index]!;
  const pulled = candidates.pulledTokens[index]!;
  // A pull takes as long as all that its source sends meanwhile.
  const peer = pulled === 0 ? 0 : pulled + candidates.lendingTokens[candidates.pullFrom[index]!]!;
  return cpu + disk + external + peer > 0 ? { cpu, disk, external, peer } : undefined;
}

function addCandidate(candidates: CandidateSet, target: RoutingTarget, position: number): number {
  const index = candidates.add(target.key, position);
  const { load, signals } = target;
  candidates.weight[index] = target.engine.weight;
  candidates.inFlight[index] = load.inFlight;
  candidates.pendingPrefillTokens[index] = load.pendingPrefillTokens;
  candidates.decodeTokens[index] = load.decodeTokens;
  candidates.answers[index] = load.answers;
  candidates.running[index] = signals.running;
  candidates.waiting[index] = signals.waiting;
  candidates.kvUse[index] = signals.kvUse;
  candidates.kvCapacityTokens[index] = signals.blockSize * signals.blockCount;
  candidates.signalAgeMs[index] = signals.ageMs();
  candidates.inFlightAtSignal[index] = signals.inFlightAtScrape;
  candidates.networkMs[index] = target.networkMs;
  return index;
}

/**
 * Writes the target's state of the requested LoRA adapter; nothing if it is unknown. What shows that the target has loaded
 * it, whichever router sent it there: blocks of the prompt, as the adapter is part of a chain, and what routers tell.
 */
function addAdapter(
  candidates: CandidateSet,
  index: number,
  { adapters, engine }: Pick<RoutingTarget, "adapters" | "engine">,
  adapter: string,
  useAgeMs: SelectorParts["adapterUseAgeMs"],
): void {
  let state = adapters.stateOf(adapter);
  if (state !== "active") {
    const isHeld = candidates.matchedTokens[index]! > 0;
    // An age that is not a number: facts, of which nobody knows how old they are.
    const heldAgeMs = isHeld ? candidates.matchAgeMs[index]! : Number.POSITIVE_INFINITY;
    const usedAgeMs = useAgeMs?.(engine.id, adapter) ?? Number.POSITIVE_INFINITY;
    const ageMs = Math.min(Number.isNaN(heldAgeMs) ? Number.POSITIVE_INFINITY : heldAgeMs, usedAgeMs);
    if (isHeld || ageMs < Number.POSITIVE_INFINITY) {
      adapters.seen(adapter, ageMs);
      state = adapters.stateOf(adapter);
    }
  }
  if (state !== undefined) candidates.adapterState[index] = adapterState[state];
}

/**
 * Prompt tokens that some candidate holds. Rounded down to a number of blocks with four leading binary digits, so that
 * prompts that diverge soon after a common prefix get the same number.
 */
function sharedTokensOf({ blockCount, blockSize }: PromptBlocks, bestTokens: number): number {
  const held = Math.min(blockCount, Math.floor(bestTokens / blockSize));
  const dropped = Math.max(0, 28 - Math.clz32(held));
  return ((held >>> dropped) << dropped) * blockSize;
}

/** A key that all prompts of a pool with this prefix share. */
function creditKeyOf({ chain, blockSize }: PromptBlocks, sharedTokens: number, model = ""): number {
  return (chain[2 * (sharedTokens / blockSize - 1)]! ^ hashString(model, 0)) >>> 0;
}
