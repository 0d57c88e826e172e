import { layOutTable, type TableColumn } from "@espalier/core";
import type { Answer, ReplayRow, RequestResult, RunLabels } from "@espalier/simulator";
import { percentOf } from "../output.ts";

const seconds = (header: string, key: Exclude<keyof ReplayRow, "kv_events" | "by_class">): TableColumn<ReplayRow> => ({
  header,
  value: (row) => row[key],
  digits: 3,
});

const columns: readonly TableColumn<ReplayRow>[] = [
  { header: "policy", value: (row) => `${row.policy ?? ""}${eventsNote(row)}` },
  { header: "routers", value: (row) => row.routers },
  { header: "sharing", value: (row) => row.sharing },
  { header: "engines", value: (row) => row.engines },
  { header: "requests", value: (row) => row.requests },
  { header: "errors", value: (row) => row.errors },
  seconds("ttft mean (s)", "ttft_mean_s"),
  seconds("p50 (s)", "ttft_p50_s"),
  seconds("p90 (s)", "ttft_p90_s"),
  seconds("p99 (s)", "ttft_p99_s"),
  { header: "itl mean (ms)", value: ({ itl_mean_s: itl }) => (itl === undefined ? undefined : itl * 1_000), digits: 1 },
  { header: "tpot p99 (ms)", value: ({ tpot_p99_s: p99 }) => (p99 === undefined ? undefined : p99 * 1_000), digits: 1 },
  { header: "goodput (%)", value: (row) => percentOf(row.goodput_share), digits: 1 },
  { header: "tokens/s out", value: (row) => row.output_tokens_per_s },
  { header: "cached (%)", value: (row) => percentOf(row.cached_share), digits: 1 },
  { header: "followup (%)", value: (row) => percentOf(row.followup_cached_share), digits: 1 },
  { header: "load cov", value: (row) => row.load_cov, digits: 3 },
];

/** The source of cache knowledge, appended to the name of a policy that uses it. */
export function eventsNote({ kv_events: events }: RunLabels): string {
  return events === undefined ? "" : events ? " + events" : " + guess";
}

/** The rows of a replay for people. */
export function renderResults(rows: readonly ReplayRow[]): string {
  return layOutTable(rows, columns);
}

/** What became of a request, by its answer. */
export function resultOf(
  answer: Answer,
  { index, session, turn, inputTokens }: Pick<RequestResult, "index" | "session" | "turn" | "inputTokens">,
): RequestResult {
  const { startMs, firstTokenMs, endMs, engine, error, errorCode, completionTokens: outputTokens = 0 } = answer;
  return {
    ...{ index, session, turn, startMs, firstTokenMs, endMs, outputTokens, engine, error, errorCode },
    inputTokens: answer.promptTokens ?? inputTokens,
    cachedTokens: answer.cachedTokens ?? Number.NaN,
    itlSumMs: outputTokens > 1 ? endMs - firstTokenMs : 0,
    itlCount: Math.max(0, outputTokens - 1),
  };
}

/** Maximum kinds of failure listed; the rest are counted. */
const maxReasons = 3;

/** Why requests failed, by code and most frequent first, each with its first message; undefined when none did. */
export function describeFailures(results: readonly RequestResult[]): string | undefined {
  const kinds = new Map<string, { count: number; readonly said: string }>();
  for (const { error, errorCode } of results) {
    if (error === undefined) continue;
    const kind = kinds.get(errorCode ?? error) ?? { count: 0, said: errorCode === undefined ? "" : `: ${error}` };
    kinds.set(errorCode ?? error, kind);
    kind.count++;
  }
  if (kinds.size === 0) return undefined;
  const reasons = [...kinds].sort(([, one], [, other]) => other.count - one.count);
  const failed = reasons.reduce((sum, [, { count }]) => sum + count, 0);
  const lines = reasons.slice(0, maxReasons).map(([reason, { count, said }]) => `  ${count} x ${reason}${said}`);
  if (reasons.length > maxReasons) lines.push(`  and ${reasons.length - maxReasons} other reasons`);
  return [`${failed} of ${results.length} requests failed:`, ...lines].join("\n");
}
