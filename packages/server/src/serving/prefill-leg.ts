import { readAnswerHead } from "@espalier/api";
import type { Span } from "@espalier/core";
import type { Permit, ResendGuard, SideCall, SideOutcome, Target } from "@espalier/engines";
import type { Dispatch, PrefillOutcome } from "@espalier/routing";
import type { PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { engineHeaders } from "./engine-request.ts";

export interface PrefillRequest {
  readonly plan: PlannedRequest;
  readonly dispatch: Dispatch<Target>;
  readonly body: readonly Buffer[];
  readonly headers: readonly string[];
  /** Most bytes kept of the answer; the rest is dropped. */
  readonly keptBytes: number;
  readonly resends: ResendGuard;
  /** Called once, unless the leg is cancelled. */
  readonly settled: (outcome: PrefillOutcome) => void;
  readonly onDefect: (thrown: unknown) => void;
}

/** The prefill leg: one engine that computes a prompt for another. */
export class PrefillLeg {
  readonly #clock: RouterContext["clock"];
  readonly #settled: PrefillRequest["settled"];
  readonly #call: SideCall;
  readonly #permit: Permit | undefined;
  readonly #span: Span | undefined;
  #isCancelled = false;

  constructor({ clock, proxy }: Pick<RouterContext, "clock" | "proxy">, request: PrefillRequest) {
    const { plan, dispatch, body, headers, keptBytes, resends, settled, onDefect } = request;
    const { target, selection } = dispatch;
    const { method, path, pool, trace } = plan;
    this.#clock = clock;
    this.#settled = settled;
    this.#span = trace?.clientSpan("prefill", { method, target, matchedTokens: selection.matchedTokens });
    const traced = this.#span ? ["traceparent", this.#span.traceparent] : [];
    this.#call = proxy.sendSide({
      ...{ method, path, headers: plan.headers, body, keptBytes, resends },
      upstream: { url: target.engine.url, headers: [...engineHeaders(pool, target), ...headers, ...traced] },
    });
    this.#permit = target.engine.breaker.begin();
    this.#call.outcome.then((outcome) => this.#settle(outcome)).catch(onDefect);
  }

  /** Aborts the leg, unless it has ended. */
  cancel(): void {
    this.#isCancelled = true;
    this.#call.cancel();
  }

  #settle(outcome: SideOutcome): void {
    const status = outcome.kind === "answered" ? statusOf(outcome) : 0;
    const isDone = status === 200;
    this.#endSpan(outcome, status);
    if (outcome.kind === "cancelled") this.#permit?.release();
    else if (outcome.kind === "failed") this.#fail(outcome.failure, outcome.error.code);
    else if (status >= 500) this.#permit?.failure(`status ${status}`);
    else if (status === 429) this.#permit?.release();
    else this.#permit?.success();
    const answer = isDone && outcome.kind === "answered" ? outcome.body : undefined;
    if (!this.#isCancelled) this.#settled({ isDone, answer });
  }

  #endSpan(outcome: SideOutcome, status: number): void {
    if (outcome.kind === "answered") this.#span?.set({ "http.response.status_code": outcome.status });
    const failure = outcome.kind === "failed" ? outcome.failure : undefined;
    this.#span?.end(this.#clock.nowMs(), status >= 400 ? String(status) : failure);
  }

  #fail(kind: string, code: string): void {
    // The router's own queue for the engine was full: no evidence about the engine's health.
    if (kind === "overloaded") this.#permit?.release();
    else this.#permit?.failure(code);
  }
}

/** The status of an answer: that of the error in it, if it has one. */
function statusOf({ status, body }: Extract<SideOutcome, { readonly kind: "answered" }>): number {
  const fault = status === 200 && body && body.length > 0 ? readAnswerHead(body, true) : undefined;
  return typeof fault === "object" ? fault.status : status;
}
