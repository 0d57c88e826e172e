import type { CounterSeries, Meter } from "@espalier/common";
import type { FailureKind } from "./failure.ts";

/** The proxy's counters, looked up once. */
export interface ProxyMetrics {
  readonly answered: CounterSeries;
  readonly failed: Readonly<Record<FailureKind, CounterSeries>>;
  readonly abandoned: CounterSeries;
  readonly freeRetries: CounterSeries;
  readonly chargedRetries: CounterSeries;
  readonly budgetExhausted: CounterSeries;
  readonly clientAborts: CounterSeries;
  readonly cutResponses: CounterSeries;
  readonly responseBytes: CounterSeries;
}

export function createProxyMetrics(meter: Meter): ProxyMetrics {
  const attempts = meter.counter({
    name: "espalier_proxy_attempts_total",
    help: "Attempts at an engine by how they ended: answered, failed in some way, or abandoned with the client's request.",
    labels: ["outcome"],
  });
  const retries = meter.counter({
    name: "espalier_proxy_retries_total",
    help: "Requests sent to another engine, by whether the retry budget was charged.",
    labels: ["budget"],
  });
  const plain = (name: string, help: string): CounterSeries => meter.counter({ name, help }).series();
  return {
    answered: attempts.series("answered"),
    abandoned: attempts.series("abandoned"),
    failed: {
      connect: attempts.series("connect"),
      overloaded: attempts.series("overloaded"),
      reset: attempts.series("reset"),
      timeout: attempts.series("timeout"),
      status: attempts.series("status"),
      protocol: attempts.series("protocol"),
      declined: attempts.series("declined"),
      withdrawn: attempts.series("withdrawn"),
    },
    freeRetries: retries.series("free"),
    chargedRetries: retries.series("charged"),
    budgetExhausted: plain("espalier_proxy_retry_budget_exhausted_total", "Retries that the budget refused."),
    clientAborts: plain("espalier_proxy_client_aborts_total", "Requests whose client went away before the end."),
    cutResponses: plain("espalier_proxy_cut_responses_total", "Responses that failed after their first byte."),
    responseBytes: plain("espalier_proxy_response_bytes_total", "Bytes of body written to clients."),
  };
}
