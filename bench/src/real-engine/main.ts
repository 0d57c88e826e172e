import { parseArgs } from "node:util";
import { layOutTable } from "@espalier/core";
import { type ResumedReport, type ResumedRow, runResumedStreams } from "./resumed-streams.ts";
import { type RealEngineReport, type RealEngineRow, runRealEngine } from "./run-real-engine.ts";

const { values } = parseArgs({
  options: { folder: { type: "string" }, json: { type: "boolean" }, streams: { type: "string" } },
});
const folder = values.folder ?? ".cache/real-engine";
const note = (line: string): boolean => process.stderr.write(`real-engine: ${line}\n`);

if (values.streams === undefined) {
  const report = await runRealEngine(folder, note);
  process.stdout.write(values.json ? `${JSON.stringify(report, undefined, 2)}\n` : table(report));
  if (report.mismatches.length > 0) process.exitCode = 1;
} else {
  const report = await runResumedStreams(folder, Number(values.streams), note);
  process.stdout.write(values.json ? `${JSON.stringify(report, undefined, 2)}\n` : streamsTable(report));
  if (report.rows.some(({ damaged }) => damaged > 0)) process.exitCode = 1;
}

function streamsTable({ rows, killed }: ResumedReport): string {
  const names = ["kind", "streams", "repeated", "resumed", "equal", "alike", "damaged"] as const;
  const table = layOutTable(rows, [
    ...names.map((name) => ({ header: name, value: (row: ResumedRow) => row[name] })),
    { header: "gap p50 (ms)", value: (row) => row.gap_p50_ms, digits: 1 },
    { header: "max (ms)", value: (row) => row.gap_max_ms, digits: 1 },
  ]);
  const { streams, completed, resumed } = killed;
  return `${table}one of two engines killed: ${completed} of ${streams} streams completed, ${resumed} of them resumed\n`;
}

function table({ rows, mismatches }: RealEngineReport): string {
  const names = ["phase", "requests", "exact", "predicted_tokens", "reported_tokens"] as const;
  const text = layOutTable(rows, [
    ...names.map((name) => ({ header: name.replace("_", " "), value: (row: RealEngineRow) => row[name] })),
    { header: "cached (%)", value: (row) => row.cached_share * 100, digits: 1 },
    { header: "same engine (%)", value: (row) => row.same_engine_share * 100, digits: 1 },
  ]);
  const notes = mismatches.map(
    ({ session, style, turn, predictedTokens, cachedTokens }) =>
      `session ${session} (${style}), turn ${turn}: ${predictedTokens} predicted, ${cachedTokens} reported\n`,
  );
  return text + notes.join("");
}
