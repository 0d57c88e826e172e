import { parseArgs } from "node:util";
import { runRealEngine } from "./run-real-engine.ts";

const { values } = parseArgs({ options: { folder: { type: "string" }, json: { type: "boolean" } } });
const report = await runRealEngine(values.folder ?? ".cache/real-engine", (line) =>
  process.stderr.write(`real-engine: ${line}\n`),
);
process.stdout.write(`${JSON.stringify(report, undefined, 2)}\n`);
if (report.mismatches.length > 0) process.exitCode = 1;
