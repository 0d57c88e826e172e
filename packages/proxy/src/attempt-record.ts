import type { ExchangeObserver, Upstream } from "./exchange.ts";
import type { AttemptFailure } from "./failure.ts";
import type { ProxyMetrics } from "./metrics.ts";
import type { RetryBudget } from "./retry-budget.ts";

/** What became of the attempts of one exchange, and what that cost the retry budget. */
export class AttemptRecord {
  readonly failures: AttemptFailure[] = [];
  readonly #budget: RetryBudget;
  readonly #metrics: ProxyMetrics;
  readonly #observer: ExchangeObserver;
  #attempts = 0;
  #charged = false;

  constructor(shared: { readonly budget: RetryBudget; readonly metrics: ProxyMetrics }, observer: ExchangeObserver) {
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

  charge(): void {
    this.#charged = true;
    this.#budget.spend();
    this.#metrics.chargedRetries.add();
  }
}
