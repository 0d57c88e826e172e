import { type Cancel, hashOf, type Scheduler } from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import type { Target } from "@espalier/engines";
import type { RequestFeatures } from "@espalier/policies";
import type { Excluded, RequestLifecycle, Selection } from "@espalier/routing";
import type { PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { describePull, pullReport } from "./pull-report.ts";

/** One routing decision. Contains no text of the prompt. */
export const describedDecision = closed({
  atMs: Type.Number({ description: "Milliseconds since the Unix epoch." }),
  endpoint: Type.String(),
  model: Type.String(),
  policy: Type.String(),
  reason: Type.String(),
  target: Type.String(),
  promptTokens: Type.Number(),
  /** How many of these the target probably has cached, KV pools included. */
  matchedTokens: Type.Number(),
  /** Null for requests that are never queued. */
  class: nullable(Type.String()),
  queuedMs: Type.Number(),
  /** Counts from 1; later attempts follow failed ones. */
  attempt: Type.Integer(),
  /** The prefill engine of a disaggregated request. */
  prefillEngine: nullable(Type.String()),
  pull: pullReport,
});

export type DescribedDecision = Described<typeof describedDecision>;

/** A decision as watchers get it. */
const decision = closed({
  /** Counts up from 1 while there are watchers. */
  number: Type.Integer(),
  ...describedDecision.properties,
  requestId: Type.String({ description: "Request id for GET /admin/requests/{id}." }),
  /** An opaque name of the session, the same in every router; null without one. */
  session: nullable(Type.String()),
  excluded: Type.Array(closed({ reason: Type.String(), count: Type.Integer() }), {
    description: "How many engines could not be chosen, by reason.",
  }),
});

type Decision = Described<typeof decision>;

/** What a decision was about. */
interface DecidedFor extends Pick<RequestFeatures, "sessionKey" | "sessionScope"> {
  readonly requestId: string;
  readonly excluded?: readonly Excluded[] | undefined;
}

/** How a request ended whose decisions were sent. */
const decisionEnd = closed({
  requestId: Type.String(),
  outcome: Type.Enum(["answered", "refused", "failed", "cut", "cancelled"]),
  status: Type.Integer(),
  durationMs: Type.Integer({ description: "Milliseconds from acceptance to the end." }),
  attempts: Type.Integer({ description: "Attempts of the request; the last one ended it." }),
});

type DecisionEnd = Described<typeof decisionEnd>;

export const decisionBatch = closed(
  {
    decisions: Type.Array(decision),
    ends: Type.Array(decisionEnd, { description: "Ends of requests, after their decisions." }),
    skipped: Type.Integer({ description: "Decisions omitted beyond the rate limit." }),
  },
  { title: "DecisionBatch" },
);

export type DecisionBatch = Described<typeof decisionBatch>;

/** Publishes decisions to watchers. Without watchers it keeps nothing and costs one comparison per decision. */
export interface DecisionFeed {
  readonly isWatched: boolean;
  /** The opaque name of a session; null without one. */
  sessionName(model: string, session: Pick<RequestFeatures, "sessionKey" | "sessionScope">): string | null;
  /** Call it only while `isWatched`. */
  note(decision: DescribedDecision, about: DecidedFor): void;
  /** A request is over. Call it only while `isWatched`. */
  ended(end: DecisionEnd): void;
  /**
   * Delivers the latest decisions at once, then new ones in batches.
   *
   * @returns undefined when there are too many watchers
   */
  watch(listener: (batch: DecisionBatch) => void): Cancel | undefined;
}

/** Most watchers at a time. */
export const maxDecisionWatchers = 64;
/** How many of the latest decisions a new watcher gets. */
export const keptDecisions = 256;
/** Requests whose end is awaited; of others nothing is said. */
export const maxAwaitedEnds = 1_024;
/** Most decisions in a batch; further ones are only counted. */
export const maxBatchDecisions = 64;
export const batchMs = 100;

interface DecisionFeedOptions {
  readonly scheduler: Scheduler;
  /** A secret shared by all routers, so that session names do not reveal session keys. */
  readonly seed: string;
}

export function createDecisionFeed({ scheduler, seed }: DecisionFeedOptions): DecisionFeed {
  const listeners = new Set<(batch: DecisionBatch) => void>();
  let kept: Decision[] = [];
  let keptEnds: DecisionEnd[] = [];
  let batch: Decision[] = [];
  let ends: DecisionEnd[] = [];
  /** Ids of requests that were told of and have not ended. */
  const awaited = new Set<string>();
  let skipped = 0;
  let number = 0;
  let cancelFlush: Cancel = () => {};
  let isWatched = false;

  const flush = (): void => {
    if (batch.length === 0 && ends.length === 0 && skipped === 0) return;
    const flushed: DecisionBatch = { decisions: batch, ends, skipped };
    kept = [...kept, ...batch].slice(-keptDecisions);
    keptEnds = [...keptEnds, ...ends].slice(-keptDecisions);
    batch = [];
    ends = [];
    skipped = 0;
    for (const listener of [...listeners]) listener(flushed);
  };
  const end = (): void => {
    cancelFlush();
    isWatched = false;
    kept = [];
    keptEnds = [];
    batch = [];
    ends = [];
    awaited.clear();
    skipped = 0;
  };

  const sessionName: DecisionFeed["sessionName"] = (model, { sessionKey, sessionScope = "" }) =>
    sessionKey ? nameOf(seed, model, `${sessionScope}\n${sessionKey}`) : null;
  return {
    sessionName,
    get isWatched() {
      return isWatched;
    },
    note(decision, { requestId, sessionKey, sessionScope, excluded = [] }) {
      number += 1;
      if (batch.length >= maxBatchDecisions) {
        skipped += 1;
        return;
      }
      batch.push({
        number,
        ...decision,
        requestId,
        session: sessionName(decision.model, { sessionKey, sessionScope }),
        excluded: countReasons(excluded),
      });
      awaited.add(requestId);
      const [oldest] = awaited;
      if (awaited.size > maxAwaitedEnds) awaited.delete(oldest!);
    },
    ended(end) {
      if (awaited.delete(end.requestId)) ends.push(end);
    },
    watch(listener) {
      if (listeners.size >= maxDecisionWatchers) return undefined;
      if (!isWatched) cancelFlush = scheduler.every(batchMs, flush);
      isWatched = true;
      listener({ decisions: kept, ends: keptEnds, skipped: 0 });
      listeners.add(listener);
      return () => {
        if (listeners.delete(listener) && listeners.size === 0) end();
      };
    },
  };
}

/** The most frequent reason first. */
function countReasons(excluded: readonly Excluded[]): Decision["excluded"] {
  const byReason = Map.groupBy(excluded, ({ reason }) => reason);
  return [...byReason]
    .map(([reason, those]) => ({ reason, count: those.length }))
    .sort((one, other) => other.count - one.count);
}

/** Eight hexadecimal digits, enough to follow a session on a screen. */
function nameOf(seed: string, model: string, session: string): string {
  return hashOf(`watched session\n${seed}\n${model}\n${session}`).low.toString(16).padStart(8, "0");
}

type DecidedRequest = Pick<RequestLifecycle<Target>, "selection" | "prefill" | "attempts" | "queuedMs">;

/** Describes the decision that was just made for a request. */
export function describeDecision(
  { admission, clock }: Pick<RouterContext, "admission" | "clock">,
  { endpointId, pool, features, service }: Pick<PlannedRequest, "endpointId" | "pool" | "features" | "service">,
  { selection, prefill, attempts, queuedMs }: DecidedRequest,
): DescribedDecision {
  const pull = (prefill ?? selection)?.pull;
  return {
    atMs: clock.wallMs(),
    endpoint: endpointId,
    model: pool.model,
    policy: pool.policy.name,
    reason: selection?.reason ?? "",
    target: selection?.target.key ?? "",
    promptTokens: features.promptTokens,
    matchedTokens: Math.min(selection?.matchedTokens ?? 0, features.promptTokens),
    class: service ? (service.className ?? admission.config.defaultClass) : null,
    queuedMs: Math.round(queuedMs),
    attempt: attempts + 1,
    prefillEngine: prefill?.target.engine.id ?? null,
    pull: describePull(pull),
  };
}

type Announcing = Pick<
  RouterContext,
  "admission" | "clock" | "decisionLog" | "decisions" | "hooks" | "metrics" | "prefixUse"
>;

/** Tells metrics, log, watchers and hooks of the engine that was chosen for an attempt. */
export function announceDecision(
  context: Announcing,
  plan: PlannedRequest,
  lifecycle: RequestLifecycle<Target>,
  selection: Selection<Target>,
): void {
  const { decisionLog, decisions, hooks, metrics, prefixUse } = context;
  const { pool, requestId, features, prompt } = plan;
  metrics.decided(pool.policy.name, selection.reason);
  plan.step?.sent(selection.target.engine.id);
  const decision = describeDecision(context, plan, lifecycle);
  decisionLog.name(selection.logged, requestId, decision);
  if (decisions.isWatched) decisions.note(decision, { ...features, requestId, excluded: selection.excluded });
  if (prompt && prefixUse.isWatched && lifecycle.attempts === 0) {
    const session = decisions.sessionName(pool.model, features);
    prefixUse.note(prompt, { model: pool.model, class: decision.class, session });
  }
  hooks?.decided?.({
    requestId,
    model: pool.model,
    policy: pool.policy.name,
    reason: selection.reason,
    engine: selection.target.engine.id,
    attempt: lifecycle.attempts + 1,
    promptTokens: features.promptTokens,
    matchedTokens: selection.matchedTokens,
  });
}
