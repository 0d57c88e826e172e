import { join } from "node:path";
import { parseArgs } from "node:util";
import { layOutTable } from "@espalier/core";
import { type CaptureRow, runCaptures } from "./run-captures.ts";

const help = `Usage: npm run conformance:captures -- --dir DIR [--models DIR] [--json]

Runs recorded traffic of real engines through the event decoder, the tokenizer and the prefix index, and compares what
they predict with what the engines reported. DIR has a folder for each capture; models are in DIR/models unless given.
`;

const { values } = parseArgs({
  options: {
    dir: { type: "string" },
    models: { type: "string" },
    json: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  },
});
if (values.help) process.stdout.write(help);
else if (values.dir === undefined) {
  process.stderr.write(`error: --dir is missing\n${help}`);
  process.exitCode = 2;
} else {
  const rows = await runCaptures({ dir: values.dir, models: values.models ?? join(values.dir, "models") });
  process.stdout.write(values.json ? `${JSON.stringify({ name: "captures", rows }, undefined, 2)}\n` : table(rows));
}

function table(rows: readonly CaptureRow[]): string {
  const columns = ["capture", "frames", "undecoded", "requests", "compared", "exact", "token_mismatches"] as const;
  const text = layOutTable(rows, [
    ...columns.map((name) => ({ header: name.replace("_", " "), value: (row: CaptureRow) => row[name] })),
    { header: "replay equal", value: (row) => (row.replay_equal ? "yes" : "no") },
  ]);
  const notes = rows.flatMap(({ capture, not_compared: reasons, inexact }) => [
    ...Object.entries(reasons).map(([reason, count]) => `${capture}: ${count} not compared: ${reason}`),
    ...inexact.map((one) => `${capture}: request ${one.id} (${one.phase}): ${one.predicted}, engine ${one.reported}`),
  ]);
  return `${text}\n${notes.join("\n")}\n`;
}
