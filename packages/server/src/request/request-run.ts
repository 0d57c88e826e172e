import { type AnswerFault, isUnknownModelAnswer, readAnswerHead } from "@espalier/api";
import { EspalierError } from "@espalier/core";
import { areAsleep, type Permit, retryAfterMs, type Target } from "@espalier/engines";
import type { AdmissionRequest, LegEdits } from "@espalier/routing";
import {
  type ChosenAlone,
  type ChosenPair,
  type ChosenPull,
  type Dispatch,
  type PlannedAttempt,
  type PrefillOutcome,
  type RequestCarrier,
  RequestLifecycle,
  type RequestQueue,
  type Restriction,
  Retries,
  type Selection,
} from "@espalier/routing";
import { AdapterRun } from "../adapters/adapter-run.ts";
import { describeDecision } from "../admin/decision-feed.ts";
import type { Diversion } from "../overflow/overflow-run.ts";
import type { RouterContext } from "../router-context.ts";
import { coldPromptOf } from "../routing/admission-parts.ts";
import { engineHeaders, HttpPair, pullEdits, rankFields } from "./http-pair.ts";
import { dropBody, type PlannedRequest } from "./planned-request.ts";
import { type AttemptFailure, type Engine, type NextEngine, Relay, type RelayOutcome, type Verdict } from "./relay.ts";
import { reportEnd } from "./request-end.ts";
import { type AnswerWatch, type ClientResponse, watchAnswer } from "./response-sink.ts";

/** The part of the router's context that a run uses. */
type RunContext = Pick<
  RouterContext,
  | "adapterLoader"
  | "adapterUse"
  | "admission"
  | "clock"
  | "decisionLog"
  | "decisions"
  | "drain"
  | "fleet"
  | "hooks"
  | "logger"
  | "memory"
  | "mesh"
  | "metrics"
  | "prefix"
  | "proxy"
  | "dryRunSelector"
  | "random"
  | "recorder"
  | "relay"
  | "selector"
  | "split"
  | "storedResponses"
  | "tracer"
>;

/**
 * Writes an error to a client that has received nothing yet.
 *
 * @param attempted headers that name the last engine that was asked, as flat pairs; empty when none was
 */
export type AnswerError = (error: EspalierError, attempted: readonly string[]) => void;

/**
 * One request from its plan to its end. Carries the lifecycle of `routing` to engines over HTTP, feeds the engines'
 * circuit breakers, reads usage from the passing answer, and reports to the client, metrics, log and trace.
 */
export class RequestRun extends Relay implements RequestCarrier<Target> {
  readonly #context: RunContext;
  readonly #plan: PlannedRequest;
  readonly #lifecycle: RequestLifecycle<Target>;
  readonly #answerError: AnswerError;
  readonly #diversion: Diversion | undefined;
  /** Undefined in a pool without KV transfer. */
  readonly #pair: HttpPair | undefined;
  /** Undefined for a request without a LoRA adapter. */
  readonly #adapter: AdapterRun | undefined;
  /** `waiting` while an adapter is being loaded or lists of models are read again, then the outcome of the former. */
  #loading: { readonly engine: Engine | undefined } | "waiting" | undefined;
  /** Whether the last engine did not serve the model. */
  #isUnknown = false;
  #hasAskedAgain = false;
  #permit: Permit | undefined;
  /** Of an engine whose client errors are suspect, while another one is asked whether it gives one too. */
  #suspect: Permit | undefined;
  /** The fault with which the present answer begins. */
  #fault: AnswerFault | undefined;
  #hasContent = false;
  #watch: AnswerWatch | undefined;
  /** Estimated from a stream's chunks. */
  #outputTokens = 0;
  /** When it was queued, on the monotonic clock; NaN while it is not. */
  #waitingMs = Number.NaN;
  #hasTurn = false;
  #hasWaited = false;
  #dispatchedMs = Number.NaN;
  #firstByteMs = Number.NaN;
  #isStream = false;

  /**
   * @param diversion its way to overflow backends; undefined when there is none
   */
  constructor(
    context: RunContext,
    plan: PlannedRequest,
    response: ClientResponse,
    answerError: AnswerError,
    diversion?: Diversion,
  ) {
    const { relay, split, clock, prefix } = context;
    const retries = new Retries(relay.retryBudget, relay.retryMeters);
    super(relay, plan, response, retries);
    this.#context = context;
    this.#plan = plan;
    this.#answerError = answerError;
    this.#diversion = diversion;
    const { adapter } = plan.features;
    this.#adapter = adapter === undefined ? undefined : new AdapterRun(context, plan, adapter);
    const isPaired = plan.targets.some(({ engine }) => engine.kvTransfer);
    if (isPaired) this.#pair = new HttpPair(context, plan, retries, (thrown) => this.crash(thrown));
    this.#lifecycle = new RequestLifecycle({
      clock,
      knowledge: prefix.knowledge,
      request: plan,
      retries,
      carrier: this,
      planner: isPaired ? split.planner : undefined,
      queue: queueOf(context, plan, diversion?.maxAhead),
      onPlanned: isPaired && plan.trace ? (chosen, begunMs) => this.#tracePlan(chosen, begunMs) : undefined,
    });
  }

  /** Starts the first attempt, now or when the request is admitted. */
  start(): void {
    if (!this.open()) return;
    try {
      const enteredMs = this.#context.clock.nowMs();
      this.#lifecycle.enter();
      if (!this.#hasTurn) this.#waitingMs = enteredMs;
      this.#hasWaited = !this.#hasTurn;
    } catch (thrown) {
      this.crash(thrown);
    }
  }

  admitted(): void {
    this.#leaveQueue("admitted");
    this.launch();
  }

  shed(error: EspalierError): void {
    this.#leaveQueue(error.code);
    this.refuse(error);
  }

  /** The planned targets when the pool has become empty: the attempt then fails as usual. */
  targets(): readonly Target[] {
    const { pool, targets, serves } = this.#plan;
    const all = this.#context.fleet.pool(pool.model);
    const now = serves ? all.filter(({ engine }) => serves(engine)) : all;
    return now.length > 0 ? now : targets;
  }

  /**
   * Chooses a target. A second attempt prefers engines that health checks find up over engines in panic mode: first
   * attempts may probe those, a client's second one should not.
   */
  select(
    targets: readonly Target[],
    restriction: Restriction<Target> & { readonly accepts: (target: Target) => boolean },
  ): Selection<Target> | undefined {
    const { pool, trace, prompt } = this.#plan;
    const { selector } = this.#context;
    const choosing = prompt && trace ? { ...restriction, onMatched: trace.onMatched } : restriction;
    trace?.picking();
    const { tried, accepts } = restriction;
    const isTrying = tried.size > 0 && targets.some(({ engine }) => engine.isTried);
    const healthy = isTrying && {
      ...choosing,
      accepts: (target: Target): boolean => target.engine.state === "up" && accepts(target),
    };
    const selection =
      (healthy && selector.select(pool, targets, this.#plan, healthy)) ||
      selector.select(pool, targets, this.#plan, choosing);
    trace?.picked(pool.policy.name, selection);
    return selection;
  }

  get isStream(): boolean {
    return this.#plan.split?.view.stream ?? false;
  }

  prepare(pair: ChosenPair<Target>, ready: (isReady: boolean) => void): void {
    this.#pair?.prepare(pair, ready);
  }

  prefill(dispatch: Dispatch<Target>, keepsAnswer: boolean, settled: (outcome: PrefillOutcome) => void) {
    return this.#pair!.prefill(dispatch, keepsAnswer, settled);
  }

  handOver(answer: Buffer | undefined): boolean {
    return this.#pair?.handOver(answer) ?? false;
  }

  withdraw(): void {
    this.withdrawAttempt();
  }

  resume(): void {
    this.proceed();
  }

  protected choose(): NextEngine {
    if (this.#loading === "waiting") return "later";
    if (this.#loading) {
      const { engine } = this.#loading;
      this.#loading = undefined;
      if (engine) return engine;
      this.#lifecycle.skipped();
      this.#permit?.release();
    }
    const attempt = this.#lifecycle.next();
    if (attempt === undefined && this.#isUnknown && !this.#hasAskedAgain) return this.#askAgain();
    return attempt === undefined || attempt === "later" ? attempt : this.#engineOf(attempt);
  }

  protected attemptStarted(): void {
    this.#plan.trace?.sent();
    this.#lifecycle.started();
    // Neither the time of a failed attempt nor the time in the queue is router overhead.
    if (this.#lifecycle.attempts === 1) this.#dispatchedMs = this.#context.clock.nowMs() - this.#lifecycle.queuedMs;
  }

  protected attemptFailed(failure: AttemptFailure): void {
    const { kind, status, error } = failure;
    this.#lifecycle.failed(kind, this.#hasContent);
    this.#plan.trace?.attemptFailed(failure);
    this.#adapter?.ended();
    this.#coolDown(failure.retryAfterMs);
    this.#isUnknown = kind === "unknown_model";
    const isOwnDoing = kind === "declined" || kind === "withdrawn" || this.#isUnknown;
    if (isOwnDoing || kind === "overloaded" || status === 429) this.#permit?.release();
    else if (isClientError(status) && !super.passesOver(status)) this.#suspect = this.#permit;
    else this.#blame(error.code);
  }

  /** Counts a failure of the engine. The permit was settled when content came, but what fails after that counts as well. */
  #blame(reason: string): void {
    if (this.#hasContent) this.#lifecycle.selection?.target.engine.breaker.begin()?.failure(reason);
    else this.#permit?.failure(reason);
  }

  /** A replica may give client errors that others would not, and fast. An error that another gives too is the client's. */
  protected override passesOver(status: number): boolean {
    if (super.passesOver(status)) return true;
    return (
      isClientError(status) && !this.#suspect && this.#lifecycle.selection?.target.engine.breaker.isSuspect === true
    );
  }

  protected judge(status: number, head: Buffer, ended: boolean): Verdict {
    const verdict = this.#adapter?.judge(status, head, ended) ?? "pass";
    if (verdict !== "pass") return verdict;
    if (status !== 400 && status !== 404) {
      const paired = this.#lifecycle.judge(status, head, ended);
      return paired === "pass" && status === 200 ? this.#judgeContent(head, ended) : paired;
    }
    if (isUnknownModelAnswer(status, head.toString("utf8"))) {
      void this.#context.fleet.refreshModels(this.#lifecycle.selection?.target.engine.id);
      return "unknown_model";
    }
    return ended ? this.#lifecycle.judge(status, head, ended) : "more";
  }

  #judgeContent(head: Buffer, ended: boolean): Verdict {
    if (!this.#isJudged) return "pass";
    const fault = readAnswerHead(head, ended);
    if (typeof fault === "object") this.#fault = fault;
    return fault ?? "pass";
  }

  /** Whether answers of this endpoint are known well enough to tell a fault. */
  get #isJudged(): boolean {
    const { endpointId, method } = this.#plan;
    return method === "POST" && endpointId !== "forwarded" && endpointId !== "stored_response";
  }

  protected answerStarted(answered: number, headers: readonly string[]): void {
    const status = this.#fault?.status ?? answered;
    this.#plan.trace?.answered(answered);
    dropBody(this.#plan);
    if (status === 429 || status === 503) this.#coolDown(retryAfterMs(headers));
    this.#lifecycle.answering(status);
    if (this.#suspect !== this.#permit) this.#settleSuspect(status);
    if (status >= 500) this.#permit?.failure(`status ${status}`);
    else if (status === 429) this.#permit?.release();
    else if (status >= 400) this.#permit?.refused();
    else if (!this.awaitsContent) this.#permit?.success();
  }

  /** @param status what another engine answered to the same request */
  #settleSuspect(status: number): void {
    if (status < 400) this.#suspect?.failure("client errors that another engine does not give");
    else if (isClientError(status)) this.#suspect?.success();
    else this.#suspect?.release();
  }

  protected responseHeaders(): readonly string[] {
    const { pool, prompt, requestId, acceptedMs } = this.#plan;
    const { selection, prefill, attempts, queuedMs } = this.#lifecycle;
    const headers = [
      "x-espalier-worker",
      selection?.target.engine.id ?? "",
      "x-espalier-attempts",
      String(attempts),
      "x-espalier-policy",
      pool.policy.name,
      "x-espalier-overhead-ms",
      (this.#dispatchedMs - acceptedMs).toFixed(3),
      "x-request-id",
      requestId,
    ];
    if (queuedMs > 0) headers.push("x-espalier-queued-ms", queuedMs.toFixed(3));
    if (prompt) headers.push("x-espalier-cache-hit-tokens", String(selection?.matchedTokens ?? 0));
    if (prefill) headers.push("x-espalier-prefill-worker", prefill.target.engine.id);
    const pull = (prefill ?? selection)?.pull;
    if (pull && pull.tokens > 0) headers.push("x-espalier-kv-source", pullText(pull));
    if (this.#context.drain.started) headers.push("connection", "close");
    return headers;
  }

  /** For an error: the last engine that was asked, and how many were, as flat pairs; empty when none was. */
  #attempted(): readonly string[] {
    const { selection, attempts } = this.#lifecycle;
    if (attempts === 0) return [];
    return ["x-espalier-failed-worker", selection?.target.engine.id ?? "", "x-espalier-attempts", String(attempts)];
  }

  protected bodyFilter(status: number, contentType: string): AnswerWatch | undefined {
    if (status !== 200) return undefined;
    this.#isStream = contentType.startsWith("text/event-stream");
    const { stripUsage, storesResponse } = this.#plan;
    this.#watch = watchAnswer({
      contentType,
      stripUsage,
      readId: storesResponse,
      onTokens: (count) => {
        this.#contentBegun();
        this.#outputTokens += count;
        this.#lifecycle.progress(count);
      },
    });
    return this.#watch;
  }

  get awaitsContent(): boolean {
    return this.#watch?.isStream === true && !this.#hasContent;
  }

  protected firstByte(): void {
    if (!this.#fault && !this.awaitsContent) this.#contentBegun();
  }

  /** Comments, and events that only open an answer, come before the engine has computed anything. */
  #contentBegun(): void {
    if (this.#hasContent) return;
    this.#hasContent = true;
    this.#permit?.success();
    this.#firstByteMs = this.#context.clock.nowMs();
    this.#plan.trace?.firstByte();
    // An answer without streaming arrives when it is complete.
    this.#lifecycle.firstToken(this.#isStream);
    this.#pair?.answerBegun();
  }

  /** The engine is taken to have computed the prompt, though nobody showed that. */
  protected promptAssumed(): void {
    this.#lifecycle.firstToken(false);
  }

  /** Releases everything, reports the end, and answers the error, if any. */
  protected settled(outcome: RelayOutcome): void {
    this.#leaveQueue(outcome.kind);
    this.#lifecycle.leave();
    this.#adapter?.ended();
    const fault = outcome.kind === "completed" ? this.#blameFault() : undefined;
    this.#suspect?.release();
    this.#permit?.release();
    const { selection, prefill, attempts, queuedMs } = this.#lifecycle;
    const usage = this.#watch?.usage();
    const stored = this.#watch?.responseId();
    if (stored !== undefined && selection) this.#context.storedResponses.remember(stored, selection.target.engine.id);
    const outputTokens = usage?.completionTokens ?? this.#outputTokens;
    this.#lifecycle.finish({
      isCompleted: outcome.kind === "completed" && !fault,
      status: outcome.kind === "completed" ? outcome.status : 0,
      isStream: this.#isStream,
      cachedTokens: usage?.cachedTokens,
      outputTokens,
    });
    const error = outcome.kind === "failed" ? this.#refusal(outcome.error) : undefined;
    const report = (): void => {
      reportEnd(this.#context, this.#plan, {
        outcome,
        error,
        fault,
        usage,
        selection,
        attempts,
        queuedMs,
        dispatchedMs: this.#dispatchedMs,
        firstByteMs: this.#firstByteMs,
        outputTokens,
        prefillWorker: prefill?.target.engine.id,
      });
      if (error) this.#answerError(error, this.#attempted());
    };
    const isFresh = attempts === 0 && !this.#hasWaited;
    if (error && this.#diversion?.take({ error, isBegun: this.retries.isResent, isFresh, report })) return;
    report();
  }

  /** @returns why the answer, which is complete for HTTP, is none */
  #blameFault(): AnswerFault | undefined {
    const fault = this.#fault ?? (this.#isJudged ? this.#watch?.fault() : undefined);
    if (!fault) return undefined;
    this.#context.relay.relayMetrics.failed.broken.add();
    if (fault.status >= 500) this.#blame(`${fault.kind} answer`);
    else if (fault.status === 429) this.#permit?.release();
    else this.#permit?.refused();
    return fault;
  }

  /** The request to the engine of an attempt. */
  #engineOf({ dispatch, leg }: PlannedAttempt<Target>): NextEngine {
    const { pool, trace, method, bodyWith, requestId, features } = this.#plan;
    const { target, selection, workMs } = dispatch;
    const { decisionLog, decisions, metrics } = this.#context;
    metrics.decided(pool.policy.name, selection.reason);
    const decision = describeDecision(this.#context, this.#plan, this.#lifecycle);
    decisionLog.name(selection.logged, requestId, decision);
    if (decisions.isWatched) decisions.note(decision, { requestId, sessionKey: features.sessionKey });
    this.#context.hooks?.decided?.({
      requestId,
      model: pool.model,
      policy: pool.policy.name,
      reason: selection.reason,
      engine: target.engine.id,
      attempt: this.#lifecycle.attempts + 1,
      promptTokens: features.promptTokens,
      matchedTokens: selection.matchedTokens,
    });
    this.#isStream = false;
    this.#fault = undefined;
    this.#permit = target.engine.breaker.begin();
    const { url } = target.engine;
    let headers = engineHeaders(pool, target);
    if (trace) {
      const { matchedTokens } = selection;
      headers = [...headers, "traceparent", trace.asking({ method, target, matchedTokens })];
    }
    const pull = leg === "whole" && selection.pull ? pullEdits(selection.pull, this.#context.random) : undefined;
    if (pull) headers = [...headers, ...pull.headers];
    const set = { ...pull?.set, ...rankFields(this.#plan, target) };
    const isEdited = workMs > 0 || Object.keys(set).length > 0;
    const body = isEdited && !this.#adapter ? bodyWith?.(set, workMs) : undefined;
    let engine: Engine = { url, headers, body };
    if (leg !== "whole" && this.#pair) {
      const own = this.#pair.of(leg, target);
      engine = { url, headers: [...headers, ...own.headers], body: own.body };
    }
    return this.#withAdapter(dispatch, engine, set);
  }

  /** Returns the engine if it has the adapter loaded; else `later`, and loads it. */
  #withAdapter(dispatch: Dispatch<Target>, engine: Engine, set: LegEdits["set"] = {}): NextEngine {
    const ready = this.#adapter?.prepare(dispatch.target, engine, { workMs: dispatch.workMs, set }) ?? engine;
    if (!(ready instanceof Promise)) return ready;
    this.#loading = "waiting";
    ready
      .then((loaded) => {
        // Loading time must not be learned as prefill time.
        dispatch.delayed();
        this.#loading = { engine: loaded };
        this.proceed();
      })
      .catch((thrown) => this.crash(thrown));
    return "later";
  }

  /** Another engine may serve the model by now: reads all lists again before the last one is chosen, or none is. */
  #askAgain(): "later" {
    this.#hasAskedAgain = true;
    this.#loading = "waiting";
    this.#context.fleet
      .refreshModels()
      .then(() => {
        this.#loading = undefined;
        this.proceed();
      })
      .catch((thrown) => this.crash(thrown));
    return "later";
  }

  /** @param pauseMs the engine's Retry-After; undefined when it sent none */
  #coolDown(pauseMs: number | undefined): void {
    if (pauseMs) this.#lifecycle.selection?.target.engine.coolDown(pauseMs);
  }

  #leaveQueue(outcome: string): void {
    this.#hasTurn = true;
    if (Number.isNaN(this.#waitingMs)) return;
    this.#plan.trace?.step("queue", this.#waitingMs, { "espalier.queue_outcome": outcome });
    this.#waitingMs = Number.NaN;
  }

  #tracePlan(chosen: ChosenPair<Target> | ChosenAlone<Target>, begunMs: number): void {
    this.#plan.trace?.step("pick", begunMs, {
      "espalier.policy": this.#plan.pool.policy.name,
      "espalier.reason": chosen.reason,
      "espalier.disaggregated": chosen.protocol !== undefined,
    });
  }

  /** Only one engine has a stored response: the client must learn when that engine is gone. Engines asleep can be woken. */
  #refusal(error: EspalierError): EspalierError {
    const { onlyEngine } = this.#plan;
    if (this.#lifecycle.attempts > 0) return error;
    const possible = this.targets().filter(({ engine }) => onlyEngine === undefined || engine.id === onlyEngine);
    if (error.code === "no_engine_available" && areAsleep(possible)) return new EspalierError("engines_asleep");
    if (onlyEngine === undefined) return error;
    return new EspalierError("response_not_found", "The engine that holds this response is not available.");
  }
}

function isClientError(status: number | undefined): status is number {
  return status !== undefined && status >= 400 && status < 500 && status !== 429;
}

/** The source of a pull, what is fetched, and the expected milliseconds beside those of computing it. */
function pullText({ source, tokens, expectedMs, computeMs }: ChosenPull<Target>): string {
  return `${source.engine.id};tokens=${tokens};ms=${Math.round(expectedMs)};compute-ms=${Math.round(computeMs)}`;
}

/**
 * The admission queue of a request; undefined for requests that are never queued.
 *
 * @param maxAhead see `AdmissionRequest`
 */
function queueOf(
  context: RunContext,
  plan: PlannedRequest,
  maxAhead: number | undefined,
): RequestQueue<Target> | undefined {
  const { service, pool, prompt, features, body, onlyEngine } = plan;
  const admission = service && context.admission.of(pool);
  if (!admission) return undefined;
  if (prompt) context.memory?.arrived(prompt);
  const request: AdmissionRequest = {
    className: service.className,
    tenant: service.tenant,
    deadlineMs: service.deadlineMs,
    promptTokens: features.promptTokens,
    expectedOutputTokens: features.expectedOutputTokens,
    onlyEngine,
    maxAhead,
    sizeBytes: body.reduce((sum, { length }) => sum + length, 0),
  };
  return { admission, request, cold: coldPromptOf(context, plan) };
}
