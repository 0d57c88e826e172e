import type { Meter } from "@espalier/core";

/** Why two engines or one served a request, in a pool whose engines transfer KV blocks. */
export type SplitReason =
  /** The prompt had enough uncached tokens. */
  | "threshold"
  /** No engine could have served it alone. */
  | "required"
  | "below_threshold"
  /** The request, or the answer that it continues, cannot be split. */
  | "unsupported"
  | "no_prefill_engine"
  | "no_decode_engine"
  /** The prefill engine refused or failed. */
  | "prefill_failed"
  /** No decode engine could continue from the computed prompt. */
  | "decode_failed"
  /** The decode engine could not fetch the computed blocks. */
  | "transfer_failed"
  /** The prefill engine's answer named nothing to fetch. */
  | "nothing_transferred"
  /** The decode engine found enough of the prompt in the caches in its reach. */
  | "cached";

export interface SplitMetrics {
  finished(path: "disaggregated" | "aggregated", reason: SplitReason): void;
  /** From the dispatch of the prefill leg to the end of its answer. */
  prefill(seconds: number): void;
  /** From the end of the prefill to the first byte of the answer. */
  transfer(seconds: number): void;
  threshold(tokens: number): void;
  /** @param share share of the model's engines that should prefill @param engines the same as a number */
  balance(model: string, share: number, engines: number): void;
  /** @param engines engines of the model that prefill for others, by role and by assignment */
  assignedPrefill(model: string, engines: number): void;
}

const legBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

export function createSplitMetrics(meter: Meter): SplitMetrics {
  const requests = meter.counter(
    "espalier_disaggregation_requests_total",
    "Requests in pools with KV transfer, by split over two engines or not, and reason.",
    ["path", "reason"],
  );
  const prefill = meter
    .histogram(
      "espalier_disaggregation_prefill_seconds",
      "Time from the dispatch of a prefill leg to the end of its answer, in seconds.",
      legBuckets,
    )
    .series();
  const transfer = meter
    .histogram(
      "espalier_disaggregation_transfer_seconds",
      "Time from the end of a prefill leg to the first byte of the decode engine's answer, in seconds.",
      legBuckets,
    )
    .series();
  const threshold = meter
    .gauge(
      "espalier_disaggregation_threshold_tokens",
      "Split threshold of the last splittable request, in uncached prompt tokens.",
    )
    .series();
  const share = meter.gauge(
    "espalier_disaggregation_advised_prefill_ratio",
    "Target share of a model's engines in prefill, by the tokens of recent requests.",
    ["model"],
  );
  const engines = meter.gauge(
    "espalier_disaggregation_advised_prefill_engines",
    "Target number of a model's engines in prefill.",
    ["model"],
  );
  const assignedPrefill = meter.gauge(
    "espalier_disaggregation_prefill_engines",
    "Engines of a model assigned to prefill by role balancing.",
    ["model"],
  );
  return {
    assignedPrefill: (model, count) => assignedPrefill.series(model).set(count),
    finished: (path, reason) => requests.series(path, reason).add(),
    prefill: (seconds) => prefill.observe(seconds),
    transfer: (seconds) => transfer.observe(seconds),
    threshold: (tokens) => threshold.set(tokens),
    balance(model, ratio, count) {
      share.series(model).set(ratio);
      engines.series(model).set(count);
    },
  };
}
