import { type CounterSeries, counterOf, type Meter } from "@espalier/common";
import type { FailureKind } from "@espalier/routing";

/** What becomes of attempts at engines and of their clients. Looked up once. */
export interface RelayMetrics {
  readonly answered: CounterSeries;
  readonly failed: Readonly<Record<FailureKind, CounterSeries>>;
  readonly abandoned: CounterSeries;
  readonly clientAborts: (amount?: number) => void;
  readonly cutResponses: (amount?: number) => void;
  readonly responseBytes: (amount?: number) => void;
}

export function createRelayMetrics(meter: Meter): RelayMetrics {
  const attempts = meter.counter({
    name: "espalier_proxy_attempts_total",
    help: "Attempts at an engine by how they ended: answered, failed in some way, or abandoned with the client's request.",
    labels: ["outcome"],
  });
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
    clientAborts: counterOf(
      meter,
      "espalier_proxy_client_aborts_total",
      "Requests whose client went away before the end.",
    ),
    cutResponses: counterOf(
      meter,
      "espalier_proxy_cut_responses_total",
      "Responses that failed after their first byte.",
    ),
    responseBytes: counterOf(meter, "espalier_proxy_response_bytes_total", "Bytes of body written to clients."),
  };
}
