import { type AnswerFault, isUnknownModelAnswer } from "@espalier/api";
import { EspalierError } from "@espalier/core";
import { areAsleep, retryAfterMs, type Target } from "@espalier/engines";
import type { LegEdits } from "@espalier/routing";
import {
  type ChosenAlone,
  type ChosenPair,
  type Dispatch,
  type PlannedAttempt,
  type PrefillOutcome,
  type RequestCarrier,
  RequestLifecycle,
  type Restriction,
  type Retries,
  type Selection,
} from "@espalier/routing";
import { AdapterRun } from "../adapters/adapter-run.ts";
import { announceDecision } from "../decisions/decision-feed.ts";
import { type AnswerListener, AnswerReader } from "../request/answer-reader.ts";
import type {
  AnswerSource,
  AttemptFailure,
  Engine,
  ExchangeControl,
  ExchangeOutcome,
  HeadVerdict,
  NextEngine,
  Verdict,
} from "../request/answer-source.ts";
import type { Abortable } from "../request/held-requests.ts";
import type { MovableStream } from "../request/movable-streams.ts";
import { dropBody, type PlannedRequest } from "../request/planned-request.ts";
import { reportEnd } from "../request/request-end.ts";
import type { RouterContext } from "../router-context.ts";
import { queueOf } from "../routing/admission-parts.ts";
import { BreakerReports } from "./breaker-reports.ts";
import { engineHeaders, pullEdits, rankFields } from "./engine-request.ts";
import { HttpPair } from "./http-pair.ts";
import type { Diversion } from "./overflow-source.ts";
import { addRoutingHeaders, attemptedHeaders } from "./routing-headers.ts";
import { continuesChats, type StreamRest, StreamResumption } from "./stream-resumption.ts";

/** What the source uses itself, and what its parts use. */
type SourceContext = Pick<
  RouterContext,
  | "clock"
  | "drain"
  | "dryRunSelector"
  | "fleet"
  | "heldRequests"
  | "live"
  | "movableStreams"
  | "prefix"
  | "random"
  | "exchange"
  | "logger"
  | "resumeLedger"
  | "selector"
  | "split"
  | "storedResponses"
> &
  ConstructorParameters<typeof AdapterRun>[0] &
  ConstructorParameters<typeof HttpPair>[0] &
  Parameters<typeof announceDecision>[0] &
  Parameters<typeof queueOf>[0] &
  Parameters<typeof reportEnd>[0];

/**
 * Writes an error to a client that has received nothing yet.
 *
 * @param attempted headers that name the last engine that was asked, as flat pairs; empty when none was
 */
export type AnswerError = (error: EspalierError, attempted: readonly string[]) => void;

/** What else limits and follows the choice of an engine. */
export interface EngineChoice {
  accepts(target: Target): boolean;
  /** @param selection undefined when no engine is left */
  chosen(selection: Selection<Target> | undefined): void;
}

interface SourceOptions {
  readonly answerError: AnswerError;
  readonly retries: Retries;
  /** Its way to overflow backends; undefined when there is none. */
  readonly diversion?: Diversion | undefined;
  readonly choice?: EngineChoice;
}

/**
 * Engines of a pool as the source of one request's answer. Carries the lifecycle of `routing` to them, feeds their
 * circuit breakers, and reports the end to the client, metrics, log and trace.
 */
export class PoolSource implements AnswerSource, AnswerListener, RequestCarrier<Target>, Abortable, MovableStream {
  readonly retries: Retries;
  readonly reader: AnswerReader;
  readonly #context: SourceContext;
  readonly #plan: PlannedRequest;
  readonly #options: SourceOptions;
  readonly #lifecycle: RequestLifecycle<Target>;
  #exchange!: ExchangeControl;
  /** Undefined in a pool without KV transfer. */
  readonly #pair: HttpPair | undefined;
  /** Undefined for a request without a LoRA adapter. */
  readonly #adapter: AdapterRun | undefined;
  readonly #resumption: StreamResumption;
  readonly #breakers: BreakerReports;
  /** What another engine is asked for, once the stream has broken. */
  #rest: StreamRest | undefined;
  /** Whether the rest turned out not to fit its beginning. */
  #isUnfit = false;
  /** Whether no engine is chosen before something else is known. */
  #isWaiting = false;
  /** The chosen engine, once its adapter is loaded; without an engine when it could not be. */
  #loaded: { readonly engine: Engine | undefined } | undefined;
  /** Whether the last engine did not serve the model. */
  #isUnknown = false;
  #hasAskedAgain = false;
  /** When it was queued, on the monotonic clock; NaN while it is not. */
  #waitingMs = Number.NaN;
  #hasTurn = false;
  #isAborted = false;
  #hasWaited = false;
  #dispatchedMs = Number.NaN;

  constructor(context: SourceContext, plan: PlannedRequest, options: SourceOptions) {
    const { split, clock, prefix } = context;
    const { retries, diversion } = options;
    this.retries = retries;
    this.#context = context;
    this.#plan = plan;
    this.#options = options;
    this.#resumption = new StreamResumption(context, plan);
    this.#breakers = new BreakerReports(context.exchange.retryStatuses);
    this.reader = new AnswerReader(clock, plan, plan.stripUsage, this, this.#resumption);
    const { adapter } = plan.features;
    this.#adapter = adapter === undefined ? undefined : new AdapterRun(context, plan, adapter);
    const isPaired = plan.targets.some(({ engine }) => engine.kvTransfer);
    if (isPaired) this.#pair = new HttpPair(context, plan, retries, (thrown) => this.#exchange.crash(thrown));
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

  /** Has the first attempt made, now or when the request is admitted. */
  start(exchange: ExchangeControl): void {
    this.#exchange = exchange;
    if (this.#plan.rollout) this.#context.heldRequests.add(this);
    const enteredMs = this.#context.clock.nowMs();
    this.#lifecycle.enter();
    if (!this.#hasTurn) this.#waitingMs = enteredMs;
    this.#hasWaited = !this.#hasTurn;
  }

  get rid(): string | undefined {
    return this.#plan.rollout?.rid;
  }

  abort(): void {
    this.#isAborted = true;
    if (!Number.isNaN(this.#waitingMs)) this.#exchange.refuse(new EspalierError("request_aborted"));
  }

  admitted(): void {
    this.#leaveQueue("admitted");
    this.#exchange.launch();
  }

  shed(error: EspalierError): void {
    this.#leaveQueue(error.code);
    this.#exchange.refuse(error);
  }

  /** The planned targets when the pool has become empty: the attempt then fails as usual. */
  targets(): readonly Target[] {
    const { pool, targets, serves } = this.#plan;
    const { choice } = this.#options;
    const all = this.#context.fleet.pool(pool.model);
    const now = serves ? all.filter(({ engine }) => serves(engine)) : all;
    const present = now.length > 0 ? now : targets;
    return choice ? present.filter((target) => choice.accepts(target)) : present;
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
    const { choice } = this.#options;
    const onMatched = prompt && trace ? trace.onMatched : undefined;
    const isHalfChat = this.#rest?.by === "text" && this.#plan.endpointId === "chat";
    const accepts =
      choice || isHalfChat
        ? (target: Target): boolean =>
            (choice?.accepts(target) ?? true) && (!isHalfChat || continuesChats(target)) && restriction.accepts(target)
        : restriction.accepts;
    const choosing = choice || isHalfChat || onMatched ? { ...restriction, accepts, onMatched } : restriction;
    trace?.picking();
    const isTrying = restriction.tried.size > 0 && targets.some(({ engine }) => engine.isTried);
    const healthy = isTrying && {
      ...choosing,
      accepts: (target: Target): boolean => target.engine.state === "up" && accepts(target),
    };
    const selection =
      (healthy && selector.select(pool, targets, this.#plan, healthy)) ||
      selector.select(pool, targets, this.#plan, choosing);
    trace?.picked(pool.policy.name, selection);
    choice?.chosen(selection);
    return selection;
  }

  uncachedTokens(): number | undefined {
    return this.#context.selector.uncachedTokens(this.targets(), this.#plan);
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
    this.#exchange.withdraw();
  }

  resume(): void {
    this.#exchange.proceed();
  }

  choose(): NextEngine {
    if (this.#isAborted || this.#isUnfit) return undefined;
    if (this.#isWaiting) return "later";
    if (this.#loaded) {
      const { engine } = this.#loaded;
      this.#loaded = undefined;
      if (engine) return engine;
      this.#lifecycle.skipped();
      this.#breakers.skipped();
    }
    const attempt = this.#lifecycle.next();
    if (attempt === undefined && this.#isUnknown && !this.#hasAskedAgain) return this.#askAgain();
    return attempt === undefined || attempt === "later" ? attempt : this.#engineOf(attempt);
  }

  move(): boolean {
    return this.#resumption.isKept && this.#exchange.move();
  }

  get mayBeginAnew(): boolean {
    const { drain, live } = this.#context;
    return this.#plan.resumableAt !== undefined && live.current.resume.max > 0 && !drain.started && !this.#rest;
  }

  resumeStream(kind: AttemptFailure["kind"], leave?: () => void): NextEngine | Buffer {
    const isMoved = kind === "withdrawn";
    const rest = this.#mayResume(kind) ? this.#resumption.rest(() => this.engineId) : undefined;
    // Its engine ends a stream that another one has nothing to add to.
    if (isMoved && Buffer.isBuffer(rest)) return undefined;
    if (rest === undefined || Buffer.isBuffer(rest)) {
      if (rest === undefined && !isMoved) this.#resumption.refused();
      if (rest !== undefined) {
        leave?.();
        this.reader.resume(undefined);
      }
      return rest;
    }
    const fitting = this.#resumption.fitting(rest);
    if (fitting === undefined || (isMoved && fitting instanceof Promise)) {
      if (!isMoved) this.#resumption.refused();
      return undefined;
    }
    leave?.();
    // The connection was not reset, but the engine may have died of the request.
    if (kind !== "reset" && !isMoved) this.retries.broke();
    const broken = this.engineId;
    this.#rest = rest;
    if (fitting instanceof Promise) {
      this.#wait(fitting, (fit) => {
        this.#isUnfit = fit === undefined;
        if (!fit) return;
        this.#rest = fit;
        this.reader.resume(fit.splice);
      });
    } else this.#rest = fitting;
    const next = this.retries.charged(() => this.choose());
    if (next === undefined) {
      this.#resumption.refused();
      return undefined;
    }
    this.#resumption.resumed(isMoved);
    this.reader.resume(this.#rest.splice);
    const { requestId } = this.#plan;
    const { by, tokens } = this.#rest;
    this.#context.logger.info("stream resumed", { requestId, broken, engine: this.engineId, kind, by, tokens });
    return next;
  }

  /** Has the next choice wait. @param settled called before an engine is chosen */
  #wait<Value>(until: Promise<Value>, settled?: (value: Value) => void): "later" {
    this.#isWaiting = true;
    until
      .then((value) => {
        this.#isWaiting = false;
        settled?.(value);
        this.#exchange.proceed();
      })
      .catch((thrown) => this.#exchange.crash(thrown));
    return "later";
  }

  #mayResume(kind: AttemptFailure["kind"]): boolean {
    if (this.#isAborted || this.#context.drain.started) return false;
    if (kind === "withdrawn") return this.#hasOtherEngine && this.retries.mayCharge();
    const isBreak =
      kind === "reset" || kind === "broken" || (kind === "timeout" && this.#context.live.current.resume.idle);
    return isBreak && this.#context.live.current.resume.max > 0 && this.retries.mayCharge();
  }

  /** Before it leaves the one that it has. */
  get #hasOtherEngine(): boolean {
    return this.targets().some(
      ({ engine, exclusion }) => engine.id !== this.engineId && exclusion === undefined && !engine.draining,
    );
  }

  get engineId(): string {
    return this.#lifecycle.selection?.target.engine.id ?? "";
  }

  started(): void {
    this.#plan.trace?.sent();
    this.#lifecycle.started();
    // Neither the time of a failed attempt nor the time in the queue is router overhead.
    if (this.#lifecycle.attempts === 1) this.#dispatchedMs = this.#context.clock.nowMs() - this.#lifecycle.queuedMs;
  }

  failed(failure: AttemptFailure): void {
    const { kind } = failure;
    this.#lifecycle.failed(kind, this.reader.hasContent);
    this.#plan.trace?.attemptFailed(failure);
    this.#adapter?.ended();
    this.#coolDown(failure.retryAfterMs);
    this.#isUnknown = kind === "unknown_model";
    // An engine without the realtime API serves the others well.
    this.#breakers.failed(failure, this.#plan.frames !== undefined);
  }

  judgeHead(status: number): HeadVerdict {
    if (this.#context.exchange.retryStatuses.has(status)) return "pass_over";
    if (this.#plan.frames && status >= 300) return "pass_over";
    return this.#breakers.suspects(status) ? "pass_over" : "pass";
  }

  judge(status: number, head: Buffer, ended: boolean): Verdict {
    const verdict = this.#adapter?.judge(status, head, ended) ?? "pass";
    if (verdict !== "pass") return verdict;
    if (status !== 400 && status !== 404) {
      const paired = this.#lifecycle.judge(status, head, ended);
      return paired === "pass" && status === 200 ? this.reader.judge(head, ended) : paired;
    }
    if (isUnknownModelAnswer(status, head.toString("utf8"))) {
      void this.#context.fleet.refreshModels(this.#lifecycle.selection?.target.engine.id);
      return "unknown_model";
    }
    return ended ? this.#lifecycle.judge(status, head, ended) : "more";
  }

  answering(answered: number, headers: readonly string[]): void {
    const status = (this.#isAbortWanted(this.reader.headFault) ? undefined : this.reader.headFault?.status) ?? answered;
    this.#plan.trace?.answered(answered);
    if (this.#resumption.isKept) this.#context.movableStreams.add(this);
    dropBody(this.#plan);
    if (status === 429 || status === 503) this.#coolDown(retryAfterMs(headers));
    this.#lifecycle.answering(status);
    this.#breakers.answering(status, this.reader.awaitsContent);
  }

  /** Frameworks abort requests at engines, also without this router, and read how far they came. */
  #isAbortWanted(fault: AnswerFault | undefined): boolean {
    return fault?.isAborted === true && this.#plan.rollout !== undefined;
  }

  editHeaders(pairs: string[]): void {
    addRoutingHeaders(pairs, this.#plan, this.#lifecycle, this.#dispatchedMs);
    if (this.#context.drain.started) pairs.push("connection", "close");
  }

  contentBegun(): void {
    this.#breakers.contentBegun();
    // An answer without streaming arrives when it is complete.
    this.#lifecycle.firstToken(this.reader.isStream);
    this.#pair?.answerBegun();
  }

  progress(tokens: number): void {
    this.#lifecycle.progress(tokens);
  }

  /** The engine is taken to have computed the prompt, though nobody showed that. */
  assumePrompt(): void {
    this.#lifecycle.firstToken(false);
  }

  /** Releases everything, reports the end, and answers the error, if any. */
  ended(outcome: ExchangeOutcome): void {
    this.#leaveQueue(outcome.kind);
    this.#resumption.ended(outcome);
    this.#context.movableStreams.delete(this);
    if (this.#plan.rollout) this.#context.heldRequests.delete(this);
    this.#lifecycle.leave();
    this.#adapter?.ended();
    const fault = outcome.kind === "completed" ? this.#blameFault() : undefined;
    this.#breakers.ended();
    const { selection, prefill, attempts, queuedMs } = this.#lifecycle;
    const { firstByteMs, isStream } = this.reader;
    const usage = this.reader.usage();
    const stored = this.reader.responseId();
    if (stored !== undefined && selection) this.#context.storedResponses.remember(stored, selection.target.engine.id);
    const outputTokens = usage?.completionTokens ?? this.reader.outputTokens;
    this.#lifecycle.finish({
      isCompleted: outcome.kind === "completed" && !fault,
      status: outcome.kind === "completed" ? outcome.status : 0,
      isStream,
      cachedTokens: usage?.cachedTokens,
      outputTokens,
      resumedTokens: this.#rest?.tokens,
    });
    const error = outcome.kind === "failed" ? this.#refusal(outcome.error) : undefined;
    const report = (): void => {
      reportEnd(this.#context, this.#plan, {
        outcome,
        error,
        fault,
        usage,
        answerEnd: this.reader.answerEnd(),
        selection,
        attempts,
        queuedMs,
        dispatchedMs: this.#dispatchedMs,
        firstByteMs,
        isStream,
        outputTokens,
        prefillEngine: prefill?.target.engine.id,
      });
      if (error) answerError(error, attemptedHeaders(this.#lifecycle));
    };
    const { answerError, diversion } = this.#options;
    const isFresh = attempts === 0 && !this.#hasWaited;
    if (error && diversion?.take({ error, isBegun: this.retries.isResent, isFresh, report })) return;
    report();
  }

  /** @returns why the answer, which is complete for HTTP, is none */
  #blameFault(): AnswerFault | undefined {
    const fault = this.reader.fault();
    if (!fault || this.#isAbortWanted(fault)) return undefined;
    this.#context.exchange.attemptMetrics.failed.broken.add();
    this.#breakers.faulty(fault);
    return fault;
  }

  /** The request to the engine of an attempt. */
  #engineOf({ dispatch, leg }: PlannedAttempt<Target>): NextEngine {
    const { pool, trace, method, bodyWith } = this.#plan;
    const { target, selection, workMs } = dispatch;
    announceDecision(this.#context, this.#plan, this.#lifecycle, selection);
    this.reader.reset();
    this.#breakers.begin(target.engine.breaker);
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
    // The prompt is a longer one, and its answer shorter.
    if (this.#rest) dispatch.delayed();
    const body = this.#rest?.body ?? (isEdited && !this.#adapter ? bodyWith?.(set, workMs) : undefined);
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
    return this.#wait(ready, (engine) => {
      // Loading time must not be learned as prefill time.
      dispatch.delayed();
      this.#loaded = { engine };
    });
  }

  /** Another engine may serve the model by now: reads all lists again before the last one is chosen, or none is. */
  #askAgain(): "later" {
    this.#hasAskedAgain = true;
    return this.#wait(this.#context.fleet.refreshModels());
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
    if (this.#isAborted) return new EspalierError("request_aborted");
    if (this.#lifecycle.attempts > 0) return error;
    const possible = this.targets().filter(({ engine }) => onlyEngine === undefined || engine.id === onlyEngine);
    if (error.code === "no_engine_available" && areAsleep(possible)) return new EspalierError("engines_asleep");
    if (onlyEngine === undefined) return error;
    if (this.#plan.rollout?.namesEngine) {
      return new EspalierError(error.code, `Engine ${onlyEngine}, which the request names, is not available.`);
    }
    return new EspalierError("response_not_found", "The engine that stores this response is not available.");
  }
}
