import type { CounterSeries, Meter } from "@espalier/core";
import type { PromptBlocks } from "./prompt-blocks.ts";

/** Metrics of the router's predictions. */
export interface CacheMeters {
  /** A prompt was divided into blocks. */
  read(from: PromptBlocks["from"]): void;
  /**
   * A prompt was sent to an engine: its tokens, those that the engine is believed to hold, and the most that any engine
   * is.
   */
  sent(promptTokens: number, chosenTokens: number, bestTokens: number): void;
  /** An engine reported its cached tokens of a prompt, under any policy. */
  reported(tokens: number): void;
  /** The same of a prompt that the policy matched. */
  compared(predictedTokens: number, reportedTokens: number): void;
  /** A prompt was sent to an engine that should fetch this many of its tokens from a pool. */
  pooled(tokens: number): void;
  /** Sizes of the index, in blocks and bytes. */
  size(facts: number, placements: number, bytes: number): void;
}

/** Registers the metrics at once; each series begins with its first use. */
export function createCacheMeters(meter: Meter): CacheMeters {
  const prompts = meter.counter(
    "espalier_prompts_total",
    "Prompts split into blocks: by tokens, by their first tokens only, or by bytes.",
    ["source"],
  );
  const compared = meter.counter(
    "espalier_cache_tokens_total",
    "Cached prompt tokens: reported by engines, under every policy; of policies that match prompts also predicted, " +
      "and predictions over and under the report, summed over requests.",
    ["kind"],
  );
  const sent = meter.counter(
    "espalier_prefix_tokens_total",
    "Prompt tokens of dispatched requests: all (prompt), expected in the chosen engine's cache (chosen), " +
      "and in the best candidate's cache (best).",
    ["kind"],
  );
  const pooled = meter
    .counter("espalier_pool_tokens_total", "Prompt tokens that engines were expected to fetch from a KV pool.")
    .series();
  const blocks = meter.gauge(
    "espalier_prefix_index_blocks",
    "Blocks per target, reported (facts) or predicted (placements).",
    ["layer"],
  );
  const bytes = meter.gauge("espalier_prefix_index_bytes", "Memory of the prefix index, in bytes.").series();
  const read: Readonly<Record<PromptBlocks["from"], CounterSeries>> = {
    tokens: prompts.series("tokens"),
    partial: prompts.series("partial"),
    bytes: prompts.series("bytes"),
  };
  const [prompt, chosen, best] = [sent.series("prompt"), sent.series("chosen"), sent.series("best")];
  const predicted = compared.series("predicted");
  const reported = compared.series("reported");
  const over = compared.series("over");
  const under = compared.series("under");
  const facts = blocks.series("facts");
  const placements = blocks.series("placements");
  return {
    read: (from) => read[from].add(),
    sent(promptTokens, chosenTokens, bestTokens) {
      prompt.add(promptTokens);
      chosen.add(chosenTokens);
      best.add(bestTokens);
    },
    reported: (tokens) => reported.add(tokens),
    compared(predictedTokens, reportedTokens) {
      predicted.add(predictedTokens);
      over.add(Math.max(0, predictedTokens - reportedTokens));
      under.add(Math.max(0, reportedTokens - predictedTokens));
    },
    pooled: (tokens) => pooled.add(tokens),
    size(factBlocks, placedBlocks, sizeBytes) {
      facts.set(factBlocks);
      placements.set(placedBlocks);
      bytes.set(sizeBytes);
    },
  };
}
