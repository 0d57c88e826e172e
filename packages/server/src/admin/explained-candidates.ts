import type { ExplainedCandidate } from "@espalier/policies";
import type { TierName } from "@espalier/prefix-index";
import { lifeId, type SharedLoad } from "@espalier/replication";
import { type FeedStanding, type PrefixEvidence, servesAlone } from "@espalier/routing";
import type { EngineRecord, Target, TargetLoad } from "@espalier/workers";
import type { TargetFeedDescription } from "../prefix/engine-feeds.ts";
import { poolKey } from "../prefix/engine-feeds.ts";
import type { RouterContext } from "../router-context.ts";

/** A candidate as its policy sees it, with where that comes from. Ages and delays in milliseconds. */
export interface CandidateReport extends Omit<ExplainedCandidate, "target"> {
  readonly load: { readonly own: LoadReport; readonly others: (LoadReport & { readonly ageMs: number }) | null };
  /** What the engine has announced of the prompt; null where the policy does not look at prompts. */
  readonly facts: FactsReport | null;
  /** What pools hold of it that the engine can fetch from; null where the policy does not look at prompts. */
  readonly pools: readonly PoolReport[] | null;
  /** What was sent there of the prompt; null where nothing was. */
  readonly placement: PlacementReport | null;
}

type LoadReport = Pick<TargetLoad, "inFlight" | "pendingPrefillTokens" | "decodeTokens">;

interface FactsReport {
  /** Leading blocks of the prompt, by tier. */
  readonly blocks: Readonly<Record<TierName, number>>;
  /** What they are worth: only those that are `complete` or `partial` are believed. */
  readonly standing: FeedStanding;
  /** The feed they come by; null for an engine that publishes none. */
  readonly feed: FeedReport | null;
}

interface PoolReport {
  readonly pool: string;
  /** Leading blocks of the prompt, in whatever memory of the pool. */
  readonly blocks: number;
  readonly standing: FeedStanding;
  readonly feed: FeedReport | null;
}

interface FeedReport {
  readonly state: string;
  readonly reason: string;
  /** The router that reads it; null where that is nobody, or this router knows of no other. */
  readonly readBy: string | null;
  /** Which run of the engine's process, by its first message known; null where that is not known. */
  readonly life: string | null;
  /** The latest message that is known here, and since when by the engine's clock. */
  readonly sequence: number | null;
  readonly ageMs: number | null;
  /** How late messages are: of the feed where it is read here, else of the journal of the router that reads it. */
  readonly lagMs: number | null;
}

interface PlacementReport {
  readonly blocks: number;
  readonly confirmedBlocks: number;
  readonly ageMs: number;
  /** The router that sent it there last; null where that is not known. */
  readonly by: string | null;
}

type Sources = Pick<RouterContext, "prefix" | "mesh" | "clock">;

/**
 * To be called before another prompt is looked up.
 *
 * @param targets of the candidates, in their order
 * @param looksAtPrompt whether the prompt was looked up at all
 */
export function describeCandidates(
  context: Sources,
  candidates: readonly ExplainedCandidate[],
  targets: readonly Target[],
  looksAtPrompt: boolean,
): readonly CandidateReport[] {
  const evidence = targets.map(({ index }) => (looksAtPrompt ? context.prefix.knowledge.evidence(index) : undefined));
  const feeds = looksAtPrompt ? feedsOf(context) : () => null;
  return candidates.map(({ target: _, ...candidate }, at) => {
    const target = targets[at]!;
    const found = evidence[at];
    return {
      ...candidate,
      load: { own: loadOf(target.load), others: othersOf(context.mesh?.load, target.index) },
      facts: found ? { blocks: found.factBlocks, standing: found.standing, feed: feeds(target.key) } : null,
      pools: found ? found.pools.map((pool) => ({ ...pool, feed: feeds(poolKey(pool.pool)) })) : null,
      placement: found ? placementOf(context, found) : null,
    };
  });
}

function loadOf({ inFlight, pendingPrefillTokens, decodeTokens }: LoadReport): LoadReport {
  return { inFlight, pendingPrefillTokens, decodeTokens };
}

function othersOf(shared: SharedLoad | undefined, index: number): CandidateReport["load"]["others"] {
  if (!shared || index >= shared.inFlight.length) return null;
  return {
    inFlight: shared.inFlight[index]!,
    pendingPrefillTokens: shared.pendingPrefillTokens[index]!,
    decodeTokens: shared.decodeTokens[index]!,
    ageMs: shared.ageMs(index),
  };
}

function placementOf({ mesh }: Sources, { placement }: PrefixEvidence): PlacementReport | null {
  if (!placement) return null;
  const { by, ...seen } = placement;
  return { ...seen, by: mesh?.replica.placements.routerOf(by) ?? null };
}

/** By target, with what the mesh knows of those that another router reads. */
function feedsOf({ prefix, mesh, clock }: Sources): (key: string) => FeedReport | null {
  const feeds = new Map(prefix.feeds?.describe().map((feed) => [feed.target, feed]));
  const lagOf = new Map(mesh?.describe().members.map(({ router, lagMs }) => [router, lagMs]));
  return (key) => {
    const feed = feeds.get(key);
    if (!feed) return null;
    const state = mesh?.replica.fold.state(key);
    const stampedMs = state?.last && state.last.timestampUs >= 0 ? state.last.timestampUs / 1_000 : undefined;
    return {
      ...readerOf(feed, lagOf),
      life: state?.life ? lifeId(state.life) : null,
      sequence: state?.last?.sequence ?? feed.lastSequence ?? null,
      ageMs: stampedMs === undefined ? (feed.lastMessageAgeMs ?? null) : Math.round(clock.wallMs() - stampedMs),
    };
  };
}

function readerOf(feed: TargetFeedDescription, lagOf: ReadonlyMap<string, number | null>) {
  const { state, reason, owner: readBy } = feed;
  const lagMs = feed.lagMs ?? (readBy === null ? null : (lagOf.get(readBy) ?? null));
  return { state, reason, readBy, lagMs };
}

/** A target of the pool that is no candidate, and why. */
export interface LeftOut {
  readonly key: string;
  /** For people; every reason there is. */
  readonly reasons: readonly string[];
}

interface LeftOutReasons {
  /** The one that holds what the request builds on, where there is one. */
  readonly onlyEngine: string | undefined;
  /** Which side of pairs an engine keeps to; undefined where it does not. */
  readonly dutyOf: (engine: EngineRecord) => "prefill" | "decode" | undefined;
}

/** @param isCandidate of the targets that the decision was made among */
export function whyLeftOut(
  targets: readonly Target[],
  isCandidate: (target: Target) => boolean,
  known: LeftOutReasons,
): readonly LeftOut[] {
  return targets
    .filter((target) => !isCandidate(target))
    .map((target) => ({ key: target.key, reasons: reasonsOf(target, known) }));
}

function reasonsOf({ engine }: Target, { onlyEngine, dutyOf }: LeftOutReasons): readonly string[] {
  const { state, stateReason, draining, breaker, isOverruled, isTried, isResting, role, id } = engine;
  const reasons: string[] = [];
  if (state !== "up" && !isTried) reasons.push(`${state}: ${stateReason}`);
  if (draining) reasons.push("an operator has drained it");
  if (!breaker.allows && !isOverruled) reasons.push(`its circuit breaker is ${breaker.state}: ${breaker.reason}`);
  if (isResting) reasons.push("it asked to be left alone for a while (Retry-After)");
  if (onlyEngine !== undefined && id !== onlyEngine)
    reasons.push(`the response that this one follows is at ${onlyEngine}`);
  if (!servesAlone({ engine })) reasons.push(`its role is ${role}: it serves no request alone`);
  if (dutyOf(engine) === "prefill") reasons.push("it computes prompts for others, by the balance of roles");
  // What filters beyond these are, this list must not keep to itself.
  return reasons.length > 0 ? reasons : ["it is not among the candidates of this request"];
}
