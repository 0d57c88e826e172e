import type { ServerResponse } from "node:http";
import { type Cancel, type Clock, EspalierError, type Scheduler } from "@espalier/common";
import { hashOf } from "@espalier/prefix-index";
import type { RequestLifecycle } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { FastifyInstance } from "fastify";
import type { PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";

/** One choice of a target, for people who watch. Nothing of the prompt is in it. */
interface Decision {
  /** Counts up from 1 while somebody watches. */
  readonly number: number;
  /** Milliseconds since the Unix epoch. */
  readonly atMs: number;
  readonly endpoint: string;
  readonly model: string;
  readonly policy: string;
  readonly reason: string;
  readonly target: string;
  readonly promptTokens: number;
  /** Of them those that the target is thought to hold, those of pools included. */
  readonly matchedTokens: number;
  /** Tells the session from others, the same in every router; null without one. The key itself is not told. */
  readonly session: string | null;
  /** Null for what never waits. */
  readonly class: string | null;
  readonly queuedMs: number;
  /** From 1; a later one was made because the ones before it failed. */
  readonly attempt: number;
  /** The engine that computes the prompt, where that is another one. */
  readonly prefillWorker: string | null;
}

/** A decision as it is noted: with the session's key, which stays here. */
export interface NotedDecision extends Omit<Decision, "number" | "atMs" | "session"> {
  readonly sessionKey: string | undefined;
}

export interface DecisionBatch {
  readonly decisions: readonly Decision[];
  /** Made since the batch before and not told, because there were too many. */
  readonly skipped: number;
}

/** Tells those who watch what was decided. While nobody does, nothing is kept and asking costs one comparison. */
export interface DecisionFeed {
  readonly isWatched: boolean;
  /** To be called only while `isWatched`. */
  note(decision: NotedDecision): void;
  /**
   * Tells the latest decisions at once, then new ones in batches.
   *
   * @returns undefined when too many watch already
   */
  watch(listener: (batch: DecisionBatch) => void): Cancel | undefined;
}

/** Who may watch at a time. */
export const maxDecisionWatchers = 64;
/** Latest decisions that somebody who begins to watch is told. */
export const keptDecisions = 256;
/** Decisions of a batch; further ones are counted. */
export const maxBatchDecisions = 64;
export const batchMs = 100;

interface DecisionFeedOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** The same in all routers and known to nobody else, so that names of sessions do not tell whose they are. */
  readonly seed: string;
}

export function createDecisionFeed({ clock, scheduler, seed }: DecisionFeedOptions): DecisionFeed {
  const listeners = new Set<(batch: DecisionBatch) => void>();
  let kept: Decision[] = [];
  let batch: Decision[] = [];
  let skipped = 0;
  let number = 0;
  let cancelFlush: Cancel = () => {};
  let isWatched = false;

  const flush = (): void => {
    if (batch.length === 0 && skipped === 0) return;
    const told: DecisionBatch = { decisions: batch, skipped };
    kept = [...kept, ...batch].slice(-keptDecisions);
    batch = [];
    skipped = 0;
    for (const listener of [...listeners]) listener(told);
  };
  const end = (): void => {
    cancelFlush();
    isWatched = false;
    kept = [];
    batch = [];
    skipped = 0;
  };

  return {
    get isWatched() {
      return isWatched;
    },
    note({ sessionKey, ...decision }) {
      number += 1;
      if (batch.length >= maxBatchDecisions) {
        skipped += 1;
        return;
      }
      const session = sessionKey ? nameOf(seed, decision.model, sessionKey) : null;
      batch.push({ number, atMs: clock.wallMs(), ...decision, session });
    },
    watch(listener) {
      if (listeners.size >= maxDecisionWatchers) return undefined;
      if (!isWatched) cancelFlush = scheduler.every(batchMs, flush);
      isWatched = true;
      listener({ decisions: kept, skipped: 0 });
      listeners.add(listener);
      return () => {
        if (listeners.delete(listener) && listeners.size === 0) end();
      };
    },
  };
}

/** Eight hexadecimal digits: enough to follow a session on a screen. */
function nameOf(seed: string, model: string, key: string): string {
  return hashOf(`watched session\n${seed}\n${model}\n${key}`).low.toString(16).padStart(8, "0");
}

type DecidedRequest = Pick<RequestLifecycle<Target>, "selection" | "prefill" | "attempts" | "queuedMs">;

/** What is noted, for those who watch, of the decision that a request has just come to. */
export function describeDecision(
  { admission }: Pick<RouterContext, "admission">,
  { endpointId, pool, features, service }: Pick<PlannedRequest, "endpointId" | "pool" | "features" | "service">,
  { selection, prefill, attempts, queuedMs }: DecidedRequest,
): NotedDecision {
  return {
    endpoint: endpointId,
    model: pool.model,
    policy: pool.policy.name,
    reason: selection?.reason ?? "",
    target: selection?.target.key ?? "",
    promptTokens: features.promptTokens,
    matchedTokens: Math.min(selection?.matchedTokens ?? 0, features.promptTokens),
    sessionKey: features.sessionKey,
    class: service ? (service.className ?? admission.config.defaultClass) : null,
    queuedMs: Math.round(queuedMs),
    attempt: attempts + 1,
    prefillWorker: prefill?.target.engine.id ?? null,
  };
}

/** Who reads is told that often that the router is there, so that silence can be told from quiet. */
const signOfLifeMs = 2_000;
/** Bytes that wait for a reader; with more, batches are skipped and counted. */
const maxWaitingBytes = 262_144;

/** `GET /admin/decisions`: what is decided from now on, as server-sent events. */
export function registerDecisions(app: FastifyInstance, feed: DecisionFeed, scheduler: Scheduler): void {
  app.get("/admin/decisions", (_, reply) => {
    const reader = createReader(reply.raw);
    const cancelWatch = feed.watch(reader.tell);
    if (!cancelWatch) throw new EspalierError("overloaded");
    const cancelSigns = scheduler.every(signOfLifeMs, reader.sign);
    reply.raw.once("close", () => {
      cancelWatch();
      cancelSigns();
    });
    reply.hijack();
    reply.raw.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
    reader.begin();
  });
}

/** Writes to one reader, who may be slow. What is told before `begin` waits for it. */
function createReader(response: ServerResponse) {
  let first: DecisionBatch | undefined;
  let skipped = 0;
  let hasBegun = false;
  const tell = (batch: DecisionBatch): void => {
    if (!hasBegun) {
      first = batch;
      return;
    }
    if (response.destroyed) return;
    if (response.writableLength > maxWaitingBytes) {
      skipped += batch.decisions.length + batch.skipped;
      return;
    }
    const told: DecisionBatch = { decisions: batch.decisions, skipped: batch.skipped + skipped };
    skipped = 0;
    response.write(`event: decisions\ndata: ${JSON.stringify(told)}\n\n`);
  };
  return {
    tell,
    sign(): void {
      if (!response.destroyed && response.writableLength <= maxWaitingBytes) response.write(": here\n\n");
    },
    begin(): void {
      hasBegun = true;
      tell(first ?? { decisions: [], skipped: 0 });
    },
  };
}
