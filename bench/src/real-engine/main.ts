import { parseArgs } from "node:util";
import { layOutTable } from "@espalier/core";
import { type RealEngineReport, type RealEngineRow, runRealEngine } from "./run-real-engine.ts";

const { values } = parseArgs({ options: { folder: { type: "string" }, json: { type: "boolean" } } });
const report = await runRealEngine(values.folder ?? ".cache/real-engine", (line) =>
  process.stderr.write(`real-engine: ${line}\n`),
);
process.stdout.write(values.json ? `${JSON.stringify(report, undefined, 2)}\n` : table(report));
if (report.mismatches.length > 0) process.exitCode = 1;

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
