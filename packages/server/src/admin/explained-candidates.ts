import { closed, type Described, nullable, record, Type } from "@espalier/core/schema";
import type { EngineRecord, Target } from "@espalier/engines";
import type { ExplainedCandidate } from "@espalier/policies";
import type { AdmissionExclusion } from "@espalier/routing";
import { type PoolEvidence, type PrefixEvidence, servesAlone } from "@espalier/routing";
import { epochId, type SharedLoad } from "@espalier/shared-tree";
import { feedQuality, poolKey, type TargetFeedDescription } from "../prefix/engine-feeds.ts";
import type { RouterContext } from "../router-context.ts";

const loadReport = closed({
  inFlight: Type.Number(),
  pendingPrefillTokens: Type.Number(),
  decodeTokens: Type.Number(),
});

type LoadReport = Described<typeof loadReport>;

/** The feed; null for an engine that publishes none. */
const explainedFeed = nullable(
  closed({
    state: Type.String(),
    reason: Type.String(),
    /** The router that reads the feed; null when none does, or when nothing is shared. */
    readBy: nullable(Type.String()),
    /** Epoch of the engine, identified by its first known message; null when unknown. */
    epoch: nullable(Type.String()),
    /** The latest message known here, and its age by the engine's clock. */
    sequence: nullable(Type.Integer()),
    ageMs: nullable(Type.Number()),
    /** Delay of messages: of the feed if this router reads it, else of the reading router's journal. */
    lagMs: nullable(Type.Number()),
  }),
  { title: "ExplainedFeed" },
);

type ExplainedFeed = Described<typeof explainedFeed>;

const placementReport = nullable(
  closed({
    blocks: Type.Integer(),
    confirmedBlocks: Type.Integer(),
    ageMs: Type.Number(),
    /** The last router that sent it there; null when unknown. */
    by: nullable(Type.String()),
  }),
);

/** A candidate as its policy sees it, and the evidence. Ages and delays are in milliseconds. */
export const candidateReport = closed(
  {
    key: Type.String(),
    eligible: Type.Boolean({ description: "Whether the candidate passed the filters." }),
    filteredBy: nullable(Type.String(), { description: "Policy filter that excluded the candidate." }),
    probability: Type.Number(),
    cost: nullable(Type.Number(), { description: "Cost in the policy's unit; lower is better." }),
    scores: record(nullable(Type.Number())),
    terms: record(nullable(Type.Number())),
    signals: record(nullable(Type.Number())),
    load: closed({
      own: loadReport,
      others: nullable(closed({ ...loadReport.properties, ageMs: Type.Number() })),
    }),
    /** Blocks of the prompt that the engine announced; null where the policy ignores prompts. */
    facts: nullable(
      closed({
        /** Leading blocks of the prompt. */
        blocks: record(Type.Integer(), { description: "Blocks by tier." }),
        /** With those that the engine of a hybrid model holds and cannot use, since a window or a state is gone. */
        heldBlocks: Type.Integer(),
        quality: feedQuality,
        feed: explainedFeed,
      }),
    ),
    /** Blocks of the prompt in KV pools that the engine can fetch from; null where the policy ignores prompts. */
    pools: nullable(
      Type.Array(
        closed({
          pool: Type.String(),
          /** Leading blocks of the prompt, in any memory of the pool. */
          blocks: Type.Integer(),
          quality: feedQuality,
          feed: explainedFeed,
        }),
      ),
    ),
    fetches: Type.Array(
      closed({
        from: Type.String({ description: "`cpu`, `disk`, `external`, or the name of a KV pool." }),
        tokens: Type.Integer(),
        ms: nullable(Type.Number(), { description: "Expected milliseconds; null until fetch times are learned." }),
      }),
      { description: "Parts of the prompt that the engine would fetch from slower memory, in their order." },
    ),
    /** Blocks of the prompt that routers sent there; null for none. */
    placement: placementReport,
  },
  { title: "Candidate" },
);

export type CandidateReport = Described<typeof candidateReport>;

type Sources = Pick<RouterContext, "prefix" | "mesh" | "clock">;

/**
 * Call it before looking up another prompt.
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
    // A pool without a feed of its own is in the engines' feeds.
    const own = found?.pools.find(({ pool }) => !feeds(poolKey(pool)));
    const read = found?.pools.filter((pool) => feeds(poolKey(pool.pool))) ?? [];
    return {
      ...candidate,
      load: { own: loadOf(target.load), others: othersOf(context.mesh?.load, target.index) },
      facts: found
        ? {
            blocks: found.factBlocks,
            heldBlocks: found.heldBlocks,
            quality: found.quality,
            feed: feeds(target.key),
          }
        : null,
      pools: found
        ? read.map(({ quality, ...pool }) => ({
            ...pool,
            quality,
            feed: feeds(poolKey(pool.pool)),
          }))
        : null,
      fetches: found ? fetchesOf(candidate.signals, own, read) : [],
      placement: found ? placementOf(context, found) : null,
    };
  });
}

/** The slower memory of an engine: the tokens that it has of the prompt there, and what fetching one takes. */
const slowMemory = [
  { from: "cpu", tokens: "matchedCpuTokens", rate: "cpuFetchMsPerToken" },
  { from: "disk", tokens: "matchedDiskTokens", rate: "diskFetchMsPerToken" },
  { from: "external", tokens: "matchedExternalTokens", rate: "externalFetchMsPerToken" },
] as const;

/**
 * @param own the pool that the engine itself announces as its external memory
 * @param pools those with feeds of their own
 */
function fetchesOf(
  signals: ExplainedCandidate["signals"],
  own: PoolEvidence | undefined,
  pools: readonly PoolEvidence[],
): CandidateReport["fetches"] {
  const pooled = signals.matchedPoolTokens ?? 0;
  const [deepest] = pools.toSorted((one, other) => usableBlocks(other) - usableBlocks(one));
  return slowMemory.flatMap(({ from, tokens, rate }) => {
    const all = signals[tokens] ?? 0;
    const ofPool = from === "external" ? pooled : 0;
    const perToken = signals[rate];
    const fetch = (name: string, count: number) => ({
      from: name,
      tokens: count,
      ms: perToken === null ? null : count * perToken,
    });
    return [
      fetch(from === "external" ? (own?.pool ?? from) : from, all - ofPool),
      fetch(deepest?.pool ?? from, ofPool),
    ].filter((one) => one.tokens > 0);
  });
}

/** Blocks that count for the engines which can fetch from the pool. */
function usableBlocks({ blocks, quality }: PoolEvidence): number {
  return quality === "complete" || quality === "partial" ? blocks : 0;
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

function placementOf({ mesh }: Sources, { placement }: PrefixEvidence): Described<typeof placementReport> {
  if (!placement) return null;
  const { by, ...seen } = placement;
  return { ...seen, by: mesh?.replica.placements.routerOf(by) ?? null };
}

/** Feeds by target, including those that other routers read. */
function feedsOf({ prefix, mesh, clock }: Sources): (key: string) => ExplainedFeed {
  const feeds = new Map(prefix.feeds?.describe().map((feed) => [feed.target, feed]));
  const lagOf = new Map(mesh?.describe().members.map(({ router, lagMs }) => [router, lagMs]));
  return (key) => {
    const feed = feeds.get(key);
    if (!feed) return null;
    const state = mesh?.replica.fold.state(key);
    const stampedMs = state?.last && state.last.timestampUs >= 0 ? state.last.timestampUs / 1_000 : undefined;
    return {
      ...readerOf(feed, lagOf),
      epoch: state?.epoch ? epochId(state.epoch) : null,
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

/** A target of the pool that is not a candidate, and all reasons why. */
export const excluded = closed({ key: Type.String(), reasons: Type.Array(Type.String()) });

type Excluded = Described<typeof excluded>;

interface ExcludedReasons {
  /** By key, what admission leaves out. */
  readonly admission: ReadonlyMap<string, AdmissionExclusion>;
  /** The engine that has the previous response, if any. */
  readonly onlyEngine: string | undefined;
  /** The assigned role of an engine of role `both`; undefined while it has none. */
  readonly assignedRoleOf: (engine: EngineRecord) => "prefill" | "decode" | undefined;
}

/** @param isCandidate whether the decision could choose the target */
export function whyExcluded(
  targets: readonly Target[],
  isCandidate: (target: Target) => boolean,
  known: ExcludedReasons,
): readonly Excluded[] {
  return targets
    .filter((target) => !isCandidate(target))
    .map((target) => ({ key: target.key, reasons: reasonsOf(target, known) }));
}

const admissionReasons: Readonly<Record<AdmissionExclusion, string>> = {
  class_partition: "class partition: reserved for other classes while work of yielding classes is in flight or queued",
  saturated: "saturated, and other engines of its class partition are not",
};

function reasonsOf(
  { key, engine, exclusion: why }: Target,
  { admission, onlyEngine, assignedRoleOf }: ExcludedReasons,
): readonly string[] {
  const { state, stateReason, draining, isPaused, breaker, isOverruled, isTried, isCoolingDown, role, id } = engine;
  const reasons: string[] = [];
  if (state !== "up" && !isTried) reasons.push(`${state}: ${stateReason}`);
  if (why === "asleep") reasons.push("asleep, by its metrics");
  if (isPaused) reasons.push("paused by an RL framework");
  if (draining) reasons.push("drained by an operator");
  if (!breaker.allows && !isOverruled) reasons.push(`circuit breaker ${breaker.state}: ${breaker.reason}`);
  if (isCoolingDown) reasons.push("in cooldown after an answer with Retry-After");
  if (onlyEngine !== undefined && id !== onlyEngine) reasons.push(`previous_response_id is stored at ${onlyEngine}`);
  if (!servesAlone({ engine })) reasons.push(`role ${role}: serves no request alone`);
  if (assignedRoleOf(engine) === "prefill") reasons.push("assigned to prefill by role balancing");
  const exclusion = admission.get(key);
  if (exclusion) reasons.push(admissionReasons[exclusion]);
  // Filters that this list does not know may have excluded it.
  return reasons.length > 0 ? reasons : ["not a candidate of this request"];
}
