import { type AnswerFault, readAnswerHead } from "@espalier/api";
import { type ErrorCode, EspalierError, silentMeter } from "@espalier/core";
import { retryAfterMs } from "@espalier/engines";
import { createRetryMeters, Retries, type RetryBudget } from "@espalier/routing";
import { describeDecision } from "../admin/decision-feed.ts";
import type { OverflowReason } from "../config/index.ts";
import { createRelayMetrics } from "../data-plane/request-metrics.ts";
import { dropBody, type PlannedRequest } from "../request/planned-request.ts";
import {
  type AttemptFailure,
  isRefusal,
  type NextEngine,
  Relay,
  type RelayOutcome,
  type Verdict,
} from "../request/relay.ts";
import { reportEnd } from "../request/request-end.ts";
import { type AnswerWatch, type ClientResponse, watchAnswer } from "../request/response-sink.ts";
import type { RouterContext } from "../router-context.ts";
import { backendHeaders, type Overflow, OverflowBackend, overflowHeaders } from "./overflow.ts";
import type { Reservation } from "./overflow-spend.ts";

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
  | "relay"
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
  readonly #overflow: Overflow;
  readonly #plan: PlannedRequest;
  readonly #response: ClientResponse;
  readonly #again: () => void;

  /** @param again starts the request anew, for engines alone */
  constructor(context: OverflowContext, plan: PlannedRequest, response: ClientResponse, again: () => void) {
    this.#context = context;
    this.#overflow = context.overflow;
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
    const found = this.#overflow.find(this.#plan, reason);
    if (found === undefined) return false;
    if (!(found instanceof OverflowBackend)) {
      this.#overflow.meters.withheld(found);
      return false;
    }
    const failed = isFresh ? this.#again : report;
    new OverflowRun(
      this.#context,
      { overflow: this.#overflow, plan: this.#plan, reason, failed },
      this.#response,
    ).start();
    return true;
  }
}

type Choosing = Pick<RouterContext, "admission" | "fleet" | "overflow">;

/** Requests behind which it does not wait, because a backend would take it; undefined for any number. */
function maxAheadOf({ fleet, overflow }: Choosing, plan: PlannedRequest): number | undefined {
  if (!isEngineUp(fleet, plan) && overflow.find(plan, "no_engine") instanceof OverflowBackend) return 0;
  const found = overflow.find(plan, "queue");
  return found instanceof OverflowBackend ? found.config.maxQueued : undefined;
}

/** Why a backend would be asked, if the request came now; undefined if it would go to an engine, or wait for one. */
export function overflowReason(context: Choosing, plan: PlannedRequest): OverflowReason | undefined {
  if (!isEngineUp(context.fleet, plan)) return "no_engine";
  const queued = context.admission.of(plan.pool)?.queued ?? 0;
  return queued >= (maxAheadOf(context, plan) ?? Number.POSITIVE_INFINITY) ? "queue" : undefined;
}

function isEngineUp(fleet: RouterContext["fleet"], { pool }: PlannedRequest): boolean {
  return fleet.pool(pool.model).some(({ usable, engine }) => usable && engine.role !== "prefill");
}

interface OverflowRunParts {
  readonly overflow: Overflow;
  readonly plan: PlannedRequest;
  readonly reason: OverflowReason;
  /** Called instead of an answer when no backend gave one. */
  readonly failed: () => void;
}

/** A request that may have been taken is not sent to another backend: it might be charged twice. */
const noBudget: RetryBudget = { earn() {}, allows: () => false, spend() {} };
const silentRetries = createRetryMeters(silentMeter);
const silentAttempts = createRelayMetrics(silentMeter);

/** One request at overflow backends: the answer of the first one that gives one. Anything but a success is a failure. */
class OverflowRun extends Relay {
  readonly #context: OverflowContext;
  readonly #parts: OverflowRunParts;
  readonly #tried = new Set<OverflowBackend>();
  readonly #clientHeaders: readonly string[];
  #backend: OverflowBackend | undefined;
  #reserved: Reservation | undefined;
  #retryAfterMs: number | undefined;
  #status = 0;
  /** The fault with which the present answer begins. */
  #fault: AnswerFault | undefined;
  #watch: AnswerWatch | undefined;
  #streamedTokens: number | undefined;
  #firstByteMs = Number.NaN;
  readonly #begunMs: number;

  constructor(context: OverflowContext, parts: OverflowRunParts, response: ClientResponse) {
    const { plan, overflow } = parts;
    const { relayMetrics, logger } = context.relay;
    const headers = overflowHeaders(plan.headers);
    super(
      {
        ...{ proxy: overflow.proxy, retryStatuses: new Set(), logger },
        relayMetrics: { ...silentAttempts, responseBytes: relayMetrics.responseBytes },
      },
      { ...plan, headers: [...headers, "x-request-id", plan.requestId] },
      response,
      new Retries(noBudget, silentRetries),
    );
    this.#context = context;
    this.#parts = parts;
    this.#clientHeaders = headers;
    this.#begunMs = context.clock.nowMs();
  }

  start(): void {
    if (this.open()) this.launch();
  }

  override answered(status: number, rawHeaders: readonly Buffer[]): boolean {
    this.#status = status;
    if (status >= 200 && status < 300) return super.answered(status, bodyHeaders(rawHeaders));
    this.#retryAfterMs = retryAfterMs(rawHeaders);
    // Another backend may take what this one does not.
    this.failed("overloaded", new EspalierError("no_engine_available", `The backend answered with status ${status}.`));
    return false;
  }

  protected choose(): NextEngine {
    const { overflow, plan, reason } = this.#parts;
    const found = overflow.find(plan, reason, this.#tried);
    if (!(found instanceof OverflowBackend) || !plan.overflow) return undefined;
    const { promptTokens, expectedOutputTokens } = plan.features;
    const { url, models } = found.config;
    const body = plan.overflow.bodyFor(models.get(plan.pool.model)!);
    this.#tried.add(found);
    this.#backend = found;
    this.#status = 0;
    this.#retryAfterMs = undefined;
    this.#fault = undefined;
    this.#reserved = overflow.reserve(found, found.costOf(promptTokens, expectedOutputTokens));
    found.inFlight += 1;
    this.#noteDecision(found);
    return { url, body, headers: backendHeaders(found.config, this.#clientHeaders) };
  }

  protected attemptStarted(): void {}

  protected attemptFailed({ kind, beforeFirstByte, error }: AttemptFailure): void {
    const backend = this.#backend;
    if (!backend || !beforeFirstByte) return;
    const { overflow, plan, reason } = this.#parts;
    const { name } = backend.config;
    overflow.meters.ended(name, reason, "failed");
    // A backend that refuses this one request may take others.
    const isItsOwn = this.#status === 0 || this.#status === 429 || this.#status === 401 || this.#status === 403;
    if (isItsOwn || this.#status >= 500) overflow.pause(backend, this.#retryAfterMs);
    this.#release(0);
    const details = { backend: name, requestId: plan.requestId, kind, status: this.#status, code: error.code };
    this.#context.logger.warn("an overflow backend failed", details);
  }

  /** An answer that begins with a refusal is like one with its status. After another error it may be charged. */
  protected judge(_status: number, head: Buffer, ended: boolean): Verdict {
    const fault = readAnswerHead(head, ended);
    if (typeof fault !== "object") return fault ?? "pass";
    this.#fault = fault;
    this.#status = fault.status;
    return fault.kind === "error" && isRefusal(fault.status) ? "decline" : fault;
  }

  get awaitsContent(): boolean {
    return this.#watch?.isStream === true && this.#streamedTokens === 0;
  }

  protected bodyFilter(status: number, contentType: string): AnswerWatch | undefined {
    if (status !== 200) return undefined;
    if (contentType.startsWith("text/event-stream")) this.#streamedTokens = 0;
    this.#watch = watchAnswer({
      contentType,
      stripUsage: this.#parts.plan.overflow?.stripUsage ?? false,
      readId: false,
      onTokens: (count) => {
        this.#streamedTokens = (this.#streamedTokens ?? 0) + count;
      },
    });
    return this.#watch;
  }

  protected responseHeaders(): readonly string[] {
    const { plan, reason } = this.#parts;
    const headers = ["x-espalier-overflow", this.#backend?.config.name ?? "", "x-espalier-overflow-reason", reason];
    if (this.#context.drain.started) headers.push("connection", "close");
    return [...headers, "x-request-id", plan.requestId];
  }

  protected answerStarted(): void {
    dropBody(this.#parts.plan);
  }

  protected firstByte(): void {
    if (this.#fault) return;
    this.#firstByteMs = this.#context.clock.nowMs();
    this.#parts.plan.trace?.firstByte();
  }

  protected settled(outcome: RelayOutcome): void {
    const { plan, reason, overflow, failed } = this.#parts;
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
      ...{ outcome, error: undefined, usage: undefined, selection: undefined, prefillWorker: undefined },
      fault: outcome.kind === "completed" ? (this.#fault ?? this.#watch?.fault()) : undefined,
      ...{ attempts: 0, queuedMs: undefined, dispatchedMs: Number.NaN, firstByteMs: this.#firstByteMs },
      outputTokens: this.#watch?.usage()?.completionTokens ?? this.#streamedTokens ?? 0,
    });
  }

  /** Counts what the answer cost, by the backend's own numbers where it gave them. */
  #charge(isComplete: boolean): void {
    const { overflow, plan } = this.#parts;
    const backend = this.#backend!;
    const usage = this.#watch?.usage();
    const { promptTokens, expectedOutputTokens } = plan.features;
    const prompt = usage?.promptTokens ?? promptTokens;
    const guessed = this.#streamedTokens ?? (isComplete ? expectedOutputTokens : 0);
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
    decisions.note(decision, { requestId: plan.requestId, sessionKey: plan.features.sessionKey });
  }
}

/** What a backend says of the body. Its other headers are about its own client, which is the router. */
function bodyHeaders(raw: readonly Buffer[]): readonly Buffer[] {
  return raw.filter((_, at) => /^content-/i.test(raw[at - (at % 2)]!.toString("latin1")));
}
