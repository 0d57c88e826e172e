import { type ErrorCode, type EspalierError, silentMeter } from "@espalier/core";
import { retryAfterMs } from "@espalier/engines";
import { createRetryMeters, noRetryBudget, Retries } from "@espalier/routing";
import type { OverflowReason } from "../config/index.ts";
import { describeDecision } from "../decisions/decision-feed.ts";
import { backendHeaders, isEngineUp, maxAheadOf, OverflowBackend, overflowHeaders } from "../overflow/overflow.ts";
import type { Reservation } from "../overflow/overflow-spend.ts";
import { AnswerReader } from "../request/answer-reader.ts";
import type {
  AnswerSource,
  AttemptFailure,
  ExchangeControl,
  ExchangeOutcome,
  HeadVerdict,
  NextEngine,
  Verdict,
} from "../request/answer-source.ts";
import { Exchange } from "../request/exchange.ts";
import { dropBody, type PlannedRequest } from "../request/planned-request.ts";
import { reportEnd } from "../request/request-end.ts";
import { createAttemptMetrics } from "../request/request-metrics.ts";
import type { ClientResponse } from "../request/response-sink.ts";
import type { RouterContext } from "../router-context.ts";

type OverflowContext = Pick<
  RouterContext,
  | "admission"
  | "clock"
  | "decisions"
  | "drain"
  | "fleet"
  | "hooks"
  | "logger"
  | "metrics"
  | "overflow"
  | "recorder"
  | "exchange"
  | "tracer"
>;

/** What the engines' side of a request did before it gave up. */
export interface GivenUp {
  readonly error: EspalierError;
  /** Whether an engine may have begun on it: then it is not sent again. */
  readonly isBegun: boolean;
  /** Whether it has neither been sent to an engine nor waited, so that it may start anew. */
  readonly isFresh: boolean;
  /** Reports the end to metrics and log, and answers the error. */
  readonly report: () => void;
}

/** What a refusal means for overflow backends, while some engine is up. Other errors are not theirs to mend. */
const reasons: Partial<Record<ErrorCode, OverflowReason>> = {
  no_engine_available: "no_engine",
  engines_asleep: "no_engine",
  upstream_connect_failed: "no_engine",
  deadline_missed: "deadline",
  queue_full: "queue",
  overloaded: "queue",
};

/** The way of one request to overflow backends. */
export class Diversion {
  readonly #context: OverflowContext;
  readonly #plan: PlannedRequest;
  readonly #response: ClientResponse;
  readonly #again: () => void;

  /** @param again starts the request anew, for engines alone */
  constructor(context: OverflowContext, plan: PlannedRequest, response: ClientResponse, again: () => void) {
    this.#context = context;
    this.#plan = plan;
    this.#response = response;
    this.#again = again;
  }

  /** See `maxAheadOf`. */
  get maxAhead(): number | undefined {
    return maxAheadOf(this.#context, this.#plan);
  }

  /** Sends the request to a backend. @returns whether there is one that takes it */
  take({ error, isBegun, isFresh, report }: GivenUp): boolean {
    const known = reasons[error.code];
    if (!known || isBegun) return false;
    const reason = isEngineUp(this.#context.fleet, this.#plan) ? known : "no_engine";
    const { overflow, exchange } = this.#context;
    const found = overflow.find(this.#plan, reason);
    if (found === undefined) return false;
    if (!(found instanceof OverflowBackend)) {
      overflow.meters.withheld(found);
      return false;
    }
    const failed = isFresh ? this.#again : report;
    const source = new OverflowSource(this.#context, { plan: this.#plan, reason, failed });
    const attemptMetrics = { ...silentAttempts, responseBytes: exchange.attemptMetrics.responseBytes };
    const parts = { ...exchange, carrier: overflow.proxy, attemptMetrics };
    new Exchange(parts, source.request, this.#response, source).start();
    return true;
  }
}

interface OverflowParts {
  readonly plan: PlannedRequest;
  readonly reason: OverflowReason;
  /** Called instead of an answer when no backend gave one. */
  readonly failed: () => void;
}

const silentRetries = createRetryMeters(silentMeter);
const silentAttempts = createAttemptMetrics(silentMeter);

/** Overflow backends as the source of one answer: that of the first one that gives one. Anything but a success is a failure. */
class OverflowSource implements AnswerSource {
  /** As backends get it. */
  readonly request: PlannedRequest;
  readonly reader: AnswerReader;
  /** A request that may have been taken is not sent to another backend: it might be charged twice. */
  readonly retries = new Retries(noRetryBudget, silentRetries);
  readonly #context: OverflowContext;
  readonly #parts: OverflowParts;
  readonly #tried = new Set<OverflowBackend>();
  readonly #clientHeaders: readonly string[];
  #backend: OverflowBackend | undefined;
  #reserved: Reservation | undefined;
  #retryAfterMs: number | undefined;
  /** Of the present answer, or of the error with which it begins; 0 before its head. */
  #status = 0;
  readonly #begunMs: number;

  constructor(context: OverflowContext, parts: OverflowParts) {
    const { plan } = parts;
    this.#context = context;
    this.#parts = parts;
    this.#clientHeaders = overflowHeaders(plan.headers);
    this.request = { ...plan, headers: [...this.#clientHeaders, "x-request-id", plan.requestId] };
    this.reader = new AnswerReader(context.clock, plan, plan.overflow?.stripUsage ?? false);
    this.#begunMs = context.clock.nowMs();
  }

  start(exchange: ExchangeControl): void {
    exchange.launch();
  }

  /** Another backend may take what this one does not. */
  judgeHead(status: number, headers: readonly Buffer[]): HeadVerdict {
    this.#status = status;
    if (status >= 200 && status < 300) return "pass";
    this.#retryAfterMs = retryAfterMs(headers);
    return "decline";
  }

  choose(): NextEngine {
    const { overflow } = this.#context;
    const { plan, reason } = this.#parts;
    const found = overflow.find(plan, reason, this.#tried);
    if (!(found instanceof OverflowBackend) || !plan.overflow) return undefined;
    const { promptTokens, expectedOutputTokens } = plan.features;
    const { url, models } = found.config;
    const body = plan.overflow.bodyFor(models.get(plan.pool.model)!);
    this.#tried.add(found);
    this.#backend = found;
    this.#status = 0;
    this.#retryAfterMs = undefined;
    this.reader.reset();
    this.#reserved = overflow.reserve(found, found.costOf(promptTokens, expectedOutputTokens));
    found.inFlight += 1;
    this.#noteDecision(found);
    return { url, body, headers: backendHeaders(found.config, this.#clientHeaders) };
  }

  started(): void {}

  failed({ kind, beforeFirstByte, error }: AttemptFailure): void {
    const backend = this.#backend;
    if (!backend || !beforeFirstByte) return;
    const { overflow } = this.#context;
    const { plan, reason } = this.#parts;
    const { name } = backend.config;
    overflow.meters.ended(name, reason, "failed");
    // A backend that refuses this one request may take others.
    const isItsOwn = kind === "broken" || ownStatuses.has(this.#status);
    if (isItsOwn || this.#status >= 500) overflow.pause(backend, this.#retryAfterMs);
    this.#release(0);
    const details = { backend: name, requestId: plan.requestId, kind, status: this.#status, code: error.code };
    this.#context.logger.warn("overflow backend failed", details);
  }

  /** After an error that is no refusal it may be charged: the client gets it. */
  judge(_status: number, head: Buffer, ended: boolean): Verdict {
    return this.reader.judge(head, ended);
  }

  /** What a backend says of the body is passed on. Its other headers are about its own client, which is the router. */
  editHeaders(pairs: string[]): void {
    const { plan, reason } = this.#parts;
    const kept = pairs.filter((_, at) => /^content-/i.test(pairs[at - (at % 2)]!));
    const own = ["x-espalier-overflow", this.#backend?.config.name ?? "", "x-espalier-overflow-reason", reason];
    pairs.splice(0, pairs.length, ...kept, ...own, "x-request-id", plan.requestId);
    if (this.#context.drain.started) pairs.push("connection", "close");
  }

  answering(): void {
    dropBody(this.#parts.plan);
  }

  ended(outcome: ExchangeOutcome): void {
    const { overflow } = this.#context;
    const { plan, reason, failed } = this.#parts;
    const name = this.#backend?.config.name ?? "";
    plan.trace?.step("overflow", this.#begunMs, { "espalier.overflow": name, "espalier.reason": reason });
    if (this.#reserved) {
      overflow.meters.ended(name, reason, outcome.kind);
      if (outcome.kind === "failed") this.#release(0);
      else this.#charge(outcome.kind === "completed");
    }
    if (outcome.kind === "failed") {
      failed();
      return;
    }
    reportEnd(this.#context, plan, {
      ...{ outcome, error: undefined, usage: undefined, selection: undefined, prefillEngine: undefined },
      fault: outcome.kind === "completed" ? this.reader.fault() : undefined,
      ...{ attempts: 0, queuedMs: undefined, dispatchedMs: Number.NaN, firstByteMs: this.reader.firstByteMs },
      answerEnd: this.reader.answerEnd(),
      isStream: this.reader.isStream,
      outputTokens: this.reader.usage()?.completionTokens ?? this.reader.outputTokens,
    });
  }

  /** Counts what the answer cost, by the backend's own numbers where it gave them. */
  #charge(isComplete: boolean): void {
    const { overflow } = this.#context;
    const { plan } = this.#parts;
    const backend = this.#backend!;
    const { isStream, outputTokens } = this.reader;
    const usage = this.reader.usage();
    const { promptTokens, expectedOutputTokens } = plan.features;
    const prompt = usage?.promptTokens ?? promptTokens;
    const unreported = isComplete ? expectedOutputTokens : 0;
    const guessed = isStream ? outputTokens : unreported;
    const completion = usage?.completionTokens ?? guessed;
    const cost = backend.costOf(prompt, completion);
    overflow.meters.tokens(backend.config.name, "prompt", prompt);
    overflow.meters.tokens(backend.config.name, "completion", completion);
    overflow.meters.spent(backend.config.name, cost);
    this.#release(cost);
  }

  #release(cost: number): void {
    this.#reserved?.settle(cost);
    this.#reserved = undefined;
    if (this.#backend) this.#backend.inFlight -= 1;
  }

  #noteDecision({ config }: OverflowBackend): void {
    const { decisions } = this.#context;
    const { plan, reason } = this.#parts;
    if (!decisions.isWatched) return;
    const attempts = this.#tried.size - 1;
    const request = { selection: undefined, prefill: undefined, attempts, queuedMs: 0 };
    const decision = {
      ...describeDecision(this.#context, plan, request),
      policy: "overflow",
      reason,
      target: config.name,
    };
    decisions.note(decision, { ...plan.features, requestId: plan.requestId });
  }
}

/** By these a backend tells of itself and not of one request; 0 is no answer. Those from 500 on do too. */
const ownStatuses: ReadonlySet<number> = new Set([0, 401, 403, 429]);
