import type { SimResult } from "../run/run-result.ts";

/** When the first and the last request were sent, in virtual milliseconds; both 0 without requests. */
export function sendingSpan(results: readonly SimResult[]): { readonly fromMs: number; readonly toMs: number } {
  if (results.length === 0) return { fromMs: 0, toMs: 0 };
  let fromMs = Number.POSITIVE_INFINITY;
  let toMs = Number.NEGATIVE_INFINITY;
  for (const { sentMs } of results) {
    fromMs = Math.min(fromMs, sentMs);
    toMs = Math.max(toMs, sentMs);
  }
  return { fromMs, toMs };
}
