import { EspalierError } from "@espalier/common";
import type { Exchange, ExchangeObserver, Upstream } from "./exchange.ts";
import type { AttemptFailure, FailureKind } from "./failure.ts";
import type { ProxyMetrics } from "./metrics.ts";
import { RequestCopies } from "./request-copies.ts";
import type { RetryBudget } from "./retry-budget.ts";

/** What became of the attempts of one exchange, and what that cost the retry budget. */
export class AttemptRecord {
  readonly failures: AttemptFailure[] = [];
  readonly copies: RequestCopies;
  readonly #budget: RetryBudget;
  readonly #metrics: ProxyMetrics;
  readonly #observer: ExchangeObserver;
  #attempts = 0;
  #charged = false;

  constructor(
    shared: { readonly budget: RetryBudget; readonly metrics: ProxyMetrics },
    { copies = new RequestCopies(), observer }: Pick<Exchange, "copies" | "observer">,
  ) {
    this.copies = copies;
    this.#budget = shared.budget;
    this.#metrics = shared.metrics;
    this.#observer = observer;
  }

  /** @returns the number of the attempt that begins, 0 for the first */
  begin(): number {
    return this.#attempts++;
  }

  hasFailed(upstream: Upstream): boolean {
    return this.failures.some((failure) => failure.upstream === upstream);
  }

  /** The engine, unless it has been tried. */
  untried(upstream: Upstream | undefined): Upstream | undefined {
    return this.failures.some((failure) => failure.upstream.key === upstream?.key) ? undefined : upstream;
  }

  /** Counts a failed attempt and tells the observer. */
  lose(upstream: Upstream, failure: Omit<AttemptFailure, "upstream">): void {
    this.#metrics.failed[failure.kind].add();
    this.report({ upstream, ...failure });
  }

  /** Tells the observer of a failure that may not count in the end. */
  report(failure: AttemptFailure): void {
    this.failures.push(failure);
    this.#observer.attemptFailed?.(failure.upstream, failure);
  }

  /** Whether the request's one charged retry is left, and the budget has room for it. */
  mayCharge(): boolean {
    if (this.#charged) return false;
    if (this.#budget.allows()) return true;
    this.#metrics.budgetExhausted.add();
    return false;
  }

  /** Whether what an engine got and failed at may be sent to another one, at a charge: not if it had begun to answer. */
  mayResend(kind: FailureKind, hasHeaders: boolean): boolean {
    if (kind === "reset" && (hasHeaders || this.copies.isDangerous)) return false;
    return kind !== "timeout" && this.mayCharge();
  }

  /** What the client is told of it. */
  verdict(cause: EspalierError): EspalierError {
    return this.copies.isDangerous ? new EspalierError("request_breaks_engines", undefined, { cause }) : cause;
  }

  charge(): void {
    this.#charged = true;
    this.#budget.spend();
    this.#metrics.chargedRetries.add();
  }
}
