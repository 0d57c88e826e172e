import type { Span } from "@espalier/common";
import type { RequestCopies, SideCall, SideOutcome } from "@espalier/proxy";
import type { Placement, PromptWork, Selection } from "@espalier/routing";
import type { LoadTicket, Permit, Target } from "@espalier/workers";
import type { PlannedRequest } from "../data-plane/planned-request.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import { upstreamHeaders } from "../data-plane/upstream-headers.ts";

/** How a prefill leg ended. `doneMs` is on the clock's monotonic axis. */
export type PrefillOutcome =
  | { readonly isDone: true; readonly answer: Buffer | undefined; readonly doneMs: number }
  | { readonly isDone: false };

export interface PrefillRequest {
  readonly plan: PlannedRequest;
  readonly selection: Selection<Target>;
  readonly body: readonly Buffer[];
  readonly headers: readonly string[];
  /** Bytes of the answer that are read; the rest is dropped. */
  readonly keptBytes: number;
  /** Of the client's request. */
  readonly copies: RequestCopies;
}

/**
 * One engine computing a prompt for another one. It is charged to the engine like a request of its own: load, breaker,
 * placement; and released however it ends.
 */
export class PrefillLeg {
  /** Never rejected. */
  readonly outcome: Promise<PrefillOutcome>;
  readonly #context: RouterContext;
  readonly #call: SideCall;
  readonly #ticket: LoadTicket;
  readonly #permit: Permit | undefined;
  readonly #work: PromptWork | undefined;
  /** Whether the answer comes when the prompt is computed, and not when another engine has fetched it. */
  readonly #isAlone: boolean;
  readonly #startedMs: number;
  readonly #span: Span | undefined;
  #placement: Placement | undefined;

  constructor(context: RouterContext, { plan, selection, body, headers, keptBytes, copies }: PrefillRequest) {
    const { target, matchedTokens } = selection;
    const { pool, features, prompt, trace } = plan;
    this.#context = context;
    this.#startedMs = context.clock.nowMs();
    this.#permit = target.engine.breaker.begin();
    this.#work = selection.work;
    const workMs = this.#work?.sent() ?? 0;
    this.#isAlone = keptBytes > 0;
    this.#ticket = target.load.begin({
      workMs,
      promptTokens: features.promptTokens,
      uncachedTokens: Math.max(1, features.promptTokens - matchedTokens),
      expectedOutputTokens: 1,
      activeBlocks: selection.activeBlocks,
    });
    if (features.adapter !== undefined) target.adapters.sent(features.adapter);
    this.#placement = prompt && context.prefix.knowledge.place(target, prompt, matchedTokens, selection);
    this.#span = trace?.beside("prefill", { method: plan.method, target, matchedTokens });
    const traced = this.#span ? ["traceparent", this.#span.traceparent] : [];
    this.#call = context.proxy.sendBeside({
      method: plan.method,
      path: plan.path,
      headers: plan.headers,
      ownHeaders: plan.ownHeaders,
      requestId: plan.requestId,
      forwardAuthorization: pool.forwardAuthorization,
      body,
      keptBytes,
      copies,
      upstream: {
        key: target.key,
        url: target.engine.url,
        headers: [...upstreamHeaders(pool, target), ...headers, ...traced],
      },
    });
    this.outcome = this.#call.outcome.then((outcome) => this.#settle(outcome));
  }

  /** Ends it at once, if it has not ended. */
  cancel(): void {
    this.#call.cancel();
  }

  #settle(outcome: SideOutcome): PrefillOutcome {
    const isDone = outcome.kind === "answered" && outcome.status === 200;
    this.#endSpan(outcome);
    if (isDone && this.#isAlone) this.#work?.firstToken();
    if (isDone) this.#ticket.firstToken();
    this.#ticket.end();
    if (isDone) this.#placement?.computed();
    else this.#placement?.withdraw();
    this.#placement?.answered(undefined);
    if (outcome.kind === "cancelled") this.#permit?.release();
    else if (outcome.kind === "failed") this.#fail(outcome.failure, outcome.error.code);
    else if (outcome.status >= 500) this.#permit?.failure(`status ${outcome.status}`);
    else if (outcome.status === 429) this.#permit?.release();
    else this.#permit?.success();
    if (!isDone) return { isDone: false };
    const doneMs = this.#context.clock.nowMs();
    this.#context.split.metrics.prefill((doneMs - this.#startedMs) / 1_000);
    return { isDone, answer: outcome.body, doneMs };
  }

  #endSpan(outcome: SideOutcome): void {
    if (outcome.kind === "answered") this.#span?.set({ "http.response.status_code": outcome.status });
    const failure = outcome.kind === "failed" ? outcome.failure : undefined;
    const isRefused = outcome.kind === "answered" && outcome.status >= 400;
    this.#span?.end(this.#context.clock.nowMs(), isRefused ? String(outcome.status) : failure);
  }

  #fail(kind: string, code: string): void {
    // The router's own queue for the engine was full: that says nothing of the engine's health.
    if (kind === "overloaded") this.#permit?.release();
    else this.#permit?.failure(code);
  }
}
