import type { Clock, Span, SpanAttributes } from "@espalier/common";
import type { Selection } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { AttemptFailure } from "../request/relay.ts";

/** What is told of an engine that is asked. */
export interface TracedCall {
  readonly method: string;
  readonly target: Target;
  /** Tokens of the prompt that the engine is thought to hold. */
  readonly matchedTokens: number;
}

/**
 * The trace of one request that is recorded: a span for the whole, and one for each step and each call of an engine
 * within it. Requests that are not recorded have none.
 */
export class RequestTrace {
  readonly #span: Span;
  readonly #clock: Clock;
  readonly #startMs: number;
  #upstream: Span | undefined;
  #calls = 0;
  #pickingMs = 0;
  #matchedMs: number | undefined;

  /** @param startMs when the request began to come in */
  constructor(span: Span, clock: Clock, startMs: number) {
    this.#span = span;
    this.#clock = clock;
    this.#startMs = startMs;
  }

  get traceparent(): string {
    return this.#span.traceparent;
  }

  nowMs(): number {
    return this.#clock.nowMs();
  }

  /** The request is complete. */
  accepted(): void {
    this.step("accept", this.#startMs);
  }

  /** A step that ends now. */
  step(name: string, startMs: number, attributes?: SpanAttributes): void {
    const start = { name, kind: "internal", startMs } as const;
    this.#span.child(attributes ? { ...start, attributes } : start).end(this.nowMs());
  }

  /** What the request turned out to ask for. */
  describe(name: string, attributes: SpanAttributes): void {
    this.#span.rename(name);
    this.#span.set(attributes);
  }

  /** An engine is about to be chosen. */
  picking(): void {
    this.#pickingMs = this.nowMs();
    this.#matchedMs = undefined;
  }

  /** It is known who holds what of the prompt. */
  readonly onMatched = (): void => {
    this.#matchedMs = this.nowMs();
  };

  picked(policy: string, selection: Selection<Target> | undefined): void {
    if (this.#matchedMs !== undefined) {
      const start = { name: "match", kind: "internal", startMs: this.#pickingMs } as const;
      this.#span.child(start).end(this.#matchedMs);
    }
    this.step("pick", this.#matchedMs ?? this.#pickingMs, {
      "espalier.policy": policy,
      "espalier.reason": selection?.reason ?? "no_engine",
      "espalier.worker": selection?.target.engine.id,
      "espalier.cache_hit_tokens": selection?.matchedTokens,
    });
  }

  /** An engine is asked for the answer. @returns `traceparent` for it */
  asking(call: TracedCall): string {
    this.#endUpstream();
    this.#upstream = this.beside("upstream", call);
    return this.#upstream.traceparent;
  }

  /** A call of an engine that ends on its own. */
  beside(name: string, { method, target, matchedTokens }: TracedCall): Span {
    const { hostname, port, protocol } = new URL(target.engine.url);
    return this.#span.child({
      name,
      kind: "client",
      startMs: this.nowMs(),
      attributes: {
        "http.request.method": method,
        "http.request.resend_count": name === "upstream" && this.#calls++ > 0 ? this.#calls - 1 : undefined,
        "server.address": hostname,
        "server.port": Number(port || (protocol === "https:" ? 443 : 80)),
        "espalier.worker": target.engine.id,
        "espalier.rank": target.engine.targets.length > 1 ? target.rank : undefined,
        "espalier.cache_hit_tokens": matchedTokens,
      },
    });
  }

  /** The request goes out to the engine that is asked. */
  sent(): void {
    this.#upstream?.event("sent", this.nowMs());
  }

  attemptFailed({ kind, status, beforeFirstByte }: AttemptFailure): void {
    this.#upstream?.set({ "http.response.status_code": status, "espalier.before_first_byte": beforeFirstByte });
    this.#endUpstream(kind);
  }

  answered(status: number): void {
    this.#upstream?.set({ "http.response.status_code": status });
  }

  firstByte(): void {
    const nowMs = this.nowMs();
    this.#upstream?.event("first_byte", nowMs);
    this.#span.event("first_byte", nowMs);
  }

  /** The request is over. @param errorType what the router or an engine did wrong */
  end(attributes: SpanAttributes, errorType: string | undefined): void {
    this.#endUpstream(errorType);
    this.#span.set(attributes);
    this.#span.end(this.nowMs(), errorType);
  }

  #endUpstream(errorType?: string): void {
    this.#upstream?.end(this.nowMs(), errorType);
    this.#upstream = undefined;
  }
}
