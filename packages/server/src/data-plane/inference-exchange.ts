import type { ServerResponse } from "node:http";
import type { Admission, AdmissionTicket } from "@espalier/admission";
import { EspalierError } from "@espalier/common";
import type { ApiFamily } from "@espalier/openai";
import {
  type AttemptFailure,
  type BodyFilter,
  type Exchange,
  type ExchangeObserver,
  type ExchangeOutcome,
  RequestCopies,
  retryAfterMs,
  type Upstream,
} from "@espalier/proxy";
import type { Placement, PromptWork, Selection } from "@espalier/routing";
import type { LoadTicket, Permit, Target } from "@espalier/workers";
import { AdapterRun } from "../adapters/adapter-run.ts";
import { describeDecision } from "../dashboard/describe-decision.ts";
import { servesAlone } from "../disaggregation/pair-roles.ts";
import { SplitRun, type SplitStep } from "../disaggregation/split-run.ts";
import { answerHeaders } from "./answer-headers.ts";
import { type AnswerWatch, watchAnswer } from "./answer-watch.ts";
import { leaveAlone } from "./leave-alone.ts";
import { dropBody, type PlannedRequest } from "./planned-request.ts";
import { reportOutcome } from "./report-outcome.ts";
import type { RouterContext } from "./router-context.ts";
import { selectSure } from "./select-sure.ts";
import { upstreamHeaders } from "./upstream-headers.ts";

/**
 * One request on its way: chooses the engine of each attempt, charges and releases its load, feeds the circuit
 * breaker, and reads the answer's usage as it passes.
 */
export class InferenceExchange implements Exchange, ExchangeObserver {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly string[];
  readonly ownHeaders: readonly string[];
  readonly requestId: string;
  readonly family: ApiFamily;
  readonly forwardAuthorization: boolean;
  readonly response: ServerResponse;
  readonly observer: ExchangeObserver = this;
  readonly copies = new RequestCopies();
  readonly deadlineMs: number;
  readonly judge?: NonNullable<Exchange["judge"]>;

  readonly #context: RouterContext;
  readonly #plan: PlannedRequest;
  readonly #tried = new Set<string>();
  /** Undefined in a pool whose engines hand over no KV blocks. */
  readonly #split: SplitRun | undefined;
  /** Undefined for a request that is for no LoRA adapter. */
  readonly #adapter: AdapterRun | undefined;
  #selection: Selection<Target> | undefined;
  #placement: Placement | undefined;
  #ticket: LoadTicket | undefined;
  #work: PromptWork | undefined;
  #permit: Permit | undefined;
  #queue: Admission<Target> | undefined;
  #admitted: AdmissionTicket | undefined;
  /** Targets with room for the first attempt; a further one may go anywhere. */
  #open: readonly Target[] | undefined;
  #watch: AnswerWatch | undefined;
  #attempts = 0;
  /** As seen in a stream, about. */
  #outputTokens = 0;
  #dispatchedMs = Number.NaN;
  #firstByteMs = Number.NaN;
  #isStream = false;
  #isFinished = false;

  constructor(context: RouterContext, plan: PlannedRequest, response: ServerResponse) {
    this.#context = context;
    this.#plan = plan;
    this.method = plan.method;
    this.path = plan.path;
    this.headers = plan.headers;
    this.ownHeaders = plan.ownHeaders;
    this.requestId = plan.requestId;
    this.family = plan.family;
    this.deadlineMs = plan.answerDueMs ?? Number.POSITIVE_INFINITY;
    this.forwardAuthorization = plan.pool.forwardAuthorization;
    this.response = response;
    const { adapter } = plan.features;
    this.#adapter = adapter === undefined ? undefined : new AdapterRun(context, plan, adapter);
    if (plan.targets.some(({ engine }) => engine.kvTransfer)) this.#split = new SplitRun(context, plan, this.copies);
    if (!this.#split && !this.#adapter?.isManaged) return;
    this.judge = (_, status, head, ended) => {
      const verdict = this.#adapter?.judge(status, head, ended) ?? "pass";
      return verdict === "pass" && this.#split ? this.#split.judge(status, head, ended) : verdict;
    };
  }

  get body(): PlannedRequest["body"] {
    return this.#plan.body;
  }

  /** Its turn has come. It goes to one of these targets. */
  admitted(queue: Admission<Target>, ticket: AdmissionTicket, open: readonly Target[]): void {
    this.#queue = queue;
    this.#admitted = ticket;
    this.#open = open;
  }

  next(): Upstream | undefined | Promise<Upstream | undefined> {
    const step = this.#split?.next(this.#tried);
    // While the engines of a pair are asked, the client may go away.
    if (step instanceof Promise) return step.then((due) => (this.#isFinished ? undefined : this.#dispatch(due)));
    return this.#dispatch(step);
  }

  #dispatch(step: SplitStep | undefined): Upstream | undefined | Promise<Upstream | undefined> {
    const { pool, features, prompt, trace } = this.#plan;
    const { metrics, prefix, decisions } = this.#context;
    if (this.copies.isDangerous) return undefined;
    const selection = step?.selection ?? this.#selectAlone();
    if (!selection) return undefined;
    const { target, reason, matchedTokens } = selection;
    metrics.decided(pool.policy.name, reason);
    if (decisions.isWatched) {
      const how = { attempt: this.#attempts + 1, admitted: this.#admitted, split: this.#split };
      decisions.note(describeDecision(this.#context, this.#plan, selection, how));
    }
    this.#selection = selection;
    this.#isStream = false;
    this.#permit = target.engine.breaker.begin();
    // What another engine computes is not computed here.
    const ownTokens = this.#split?.prefillWorker === undefined ? features.promptTokens - matchedTokens : 0;
    this.#work = ownTokens > 0 ? selection.work : undefined;
    const workMs = this.#work?.sent() ?? 0;
    this.#ticket = target.load.begin({
      promptTokens: features.promptTokens,
      uncachedTokens: Math.max(1, ownTokens),
      expectedOutputTokens: features.expectedOutputTokens,
      workMs,
      activeBlocks: selection.activeBlocks,
    });
    this.#admitted?.dispatched(Math.max(1, features.promptTokens - matchedTokens));
    // Before the request goes out, so that its siblings of one burst find it.
    this.#placement = prompt && prefix.knowledge.place(target, prompt, matchedTokens, selection);
    let headers = upstreamHeaders(pool, target);
    if (trace) headers = [...headers, "traceparent", trace.asking({ method: this.method, target, matchedTokens })];
    const body = workMs > 0 && !this.#adapter ? this.#plan.bodyWith?.({}, workMs) : undefined;
    const upstream: Upstream = { key: target.key, url: target.engine.url, headers, body };
    const leg = step?.leg && { key: step.key, headers: [...headers, ...step.leg.headers], body: step.leg.body };
    return this.#withAdapter(target, leg ? { ...upstream, ...leg } : upstream, workMs);
  }

  /** At once where the engine serves the adapter that is asked for; else when it does, or the next one that can. */
  #withAdapter(target: Target, upstream: Upstream, workMs: number): Upstream | Promise<Upstream | undefined> {
    const ready = this.#adapter?.prepare(target, upstream, workMs) ?? upstream;
    if (!(ready instanceof Promise)) return ready;
    return ready.then((loaded) => {
      if (this.#isFinished) return undefined;
      // What the loading took is not to be learned as prefill.
      this.#work = undefined;
      if (loaded) return loaded;
      this.#tried.add(target.key);
      this.#ticket?.end();
      this.#withdraw();
      this.#permit?.release();
      return this.next();
    });
  }

  #selectAlone(): Selection<Target> | undefined {
    const { pool, onlyEngine, prompt, trace } = this.#plan;
    const targets = (this.#tried.size === 0 ? this.#open : undefined) ?? this.#plan.targets;
    const accepts = this.#split ? this.#context.split.alonePredicate(pool, targets, this.#tried) : servesAlone;
    const restriction = { tried: this.#tried, onlyEngine, accepts, onMatched: prompt && trace?.onMatched };
    return selectSure(this.#context.selector, this.#plan, targets, restriction);
  }

  attemptStarted(_: Upstream, __: number, withdraw: () => void): void {
    this.#attempts++;
    this.#plan.trace?.sent();
    this.#split?.started(withdraw);
    // Time that a failed engine took is not the router's, nor is that in which all engines were busy.
    if (this.#attempts === 1) this.#dispatchedMs = this.#context.clock.nowMs() - (this.#admitted?.waitedMs ?? 0);
  }

  attemptFailed(_: Upstream, failure: AttemptFailure): void {
    const isOwnDoing = failure.kind === "declined" || failure.kind === "withdrawn";
    if (this.#selection && !isOwnDoing) this.#tried.add(this.#selection.target.key);
    this.#split?.failed(failure.kind);
    this.#plan.trace?.attemptFailed(failure);
    this.#ticket?.end();
    this.#adapter?.ended();
    if (failure.beforeFirstByte) this.#withdraw();
    leaveAlone(this.#plan, this.#selection, failure.retryAfterMs);
    if (isOwnDoing || failure.kind === "overloaded" || failure.status === 429) this.#permit?.release();
    else if (failure.beforeFirstByte) this.#permit?.failure(failure.error.code);
    // The permit was settled when the answer began, in good faith; an engine that dies half-way must not look healthy.
    else this.#selection?.target.engine.breaker.begin()?.failure(failure.error.code);
  }

  responseStarted(_: Upstream, status: number, headers: readonly string[] = []): void {
    this.#plan.trace?.answered(status);
    dropBody(this.#plan);
    if (status === 429 || status === 503) leaveAlone(this.#plan, this.#selection, retryAfterMs(headers));
    if (status >= 400) this.#withdraw();
    if (status >= 500) this.#permit?.failure(`status ${status}`);
    else if (status === 429) this.#permit?.release();
    else this.#permit?.success();
  }

  responseHeaders(): readonly string[] {
    return answerHeaders(this.#context, this.#plan, {
      selection: this.#selection,
      attempts: this.#attempts,
      overheadMs: this.#dispatchedMs - this.#plan.acceptedMs,
      queuedMs: this.#admitted?.waitedMs ?? 0,
      prefillWorker: this.#split?.prefillWorker,
    });
  }

  firstByte(): void {
    this.#firstByteMs = this.#context.clock.nowMs();
    this.#plan.trace?.firstByte();
    // An answer that is not streamed comes when all of it is there.
    if (this.#isStream) this.#work?.firstToken();
    this.#ticket?.firstToken();
    this.#placement?.computed();
    this.#split?.firstByte();
    this.#queue?.eased();
  }

  bodyFilter(status: number, contentType: string): BodyFilter | undefined {
    if (status !== 200) return undefined;
    this.#isStream = contentType.startsWith("text/event-stream");
    const { stripUsage, storesResponse } = this.#plan;
    const ticket = this.#ticket;
    this.#watch = watchAnswer({
      contentType,
      stripUsage,
      readId: storesResponse,
      onTokens: (count) => {
        this.#outputTokens += count;
        ticket?.progress(count);
      },
    });
    return this.#watch;
  }

  /** Takes in how it ended: releases the load, counts, remembers. Returns the error to answer with, if there is one. */
  finish(outcome: ExchangeOutcome): EspalierError | undefined {
    const { clock, storedResponses } = this.#context;
    this.#isFinished = true;
    this.#ticket?.end();
    this.#adapter?.ended();
    this.#permit?.release();
    const usage = this.#watch?.usage();
    const isCompleted = outcome.kind === "completed";
    if (isCompleted && this.#isStream) this.#work?.ended(usage?.completionTokens ?? this.#outputTokens);
    const stored = this.#watch?.responseId();
    if (stored !== undefined && this.#selection) storedResponses.remember(stored, this.#selection.target.engine.id);
    if (!isCompleted && Number.isNaN(this.#firstByteMs)) this.#withdraw();
    // Tokens that came from another engine say nothing of this one's cache.
    const isComparable = isCompleted && this.#split?.prefillWorker === undefined;
    this.#placement?.answered(isComparable ? usage?.cachedTokens : undefined);
    this.#split?.finish({
      isAnswered: isCompleted && outcome.status < 400,
      selection: this.#selection,
      outputTokens: usage?.completionTokens ?? 0,
      writingMs: this.#isStream ? clock.nowMs() - this.#firstByteMs : 0,
    });
    this.#admitted?.ended(usage?.completionTokens ?? this.#outputTokens);
    this.#queue?.eased();
    const error = outcome.kind === "failed" ? this.#refusal(outcome.error) : undefined;
    reportOutcome(this.#context, this.#plan, {
      outcome,
      error,
      usage,
      selection: this.#selection,
      attempts: this.#attempts,
      dispatchedMs: this.#dispatchedMs,
      firstByteMs: this.#firstByteMs,
      prefillWorker: this.#split?.prefillWorker,
      queuedMs: this.#admitted?.waitedMs,
    });
    return error;
  }

  /** A prompt that was refused, if to the client, or that its client left before a token, has not been computed. */
  #withdraw(): void {
    this.#placement?.withdraw();
    this.#placement = undefined;
  }

  /** A stored response cannot be had from another engine than its own: then that is what the client must know. */
  #refusal(error: EspalierError): EspalierError {
    if (this.#plan.onlyEngine === undefined || this.#attempts > 0) return error;
    return new EspalierError("response_not_found", "The engine that holds this response is not available.");
  }
}
