// Builds llm-d's endpoint picker and runs it before engines, for comparisons by hand:
// node bench/dist/pickers/main.js --engine URL --engine URL
import { parseArgs } from "node:util";
import { systemClock, systemScheduler } from "@espalier/core";
import { buildGoProgram } from "./build-go-program.ts";
import { llmdSource, startLlmdPicker } from "./llmd-picker.ts";

const usage = `usage: node bench/dist/pickers/main.js --engine URL [--engine URL] [options]

Builds llm-d's endpoint picker (${llmdSource.commit.slice(0, 7)}) once, by git and go, and runs it before these engines until it
is interrupted. Prints one line of JSON with the ports where gateways ask it and where it answers health checks.

  --engine URL      an engine, http://ADDRESS:PORT; may be repeated
  --folder DIR      where it is kept (.cache/pickers)
  --repository DIR  a clone to take the commit from, in place of ${llmdSource.repository}
  --build           only build it, and print its path
`;

const { values } = parseArgs({
  options: {
    engine: { type: "string", multiple: true, default: [] },
    folder: { type: "string", default: ".cache/pickers" },
    repository: { type: "string" },
    build: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

if (values.help || (values.engine.length === 0 && !values.build)) {
  process.stderr.write(usage);
  process.exitCode = values.help ? 0 : 2;
} else await run();

async function run(): Promise<void> {
  const { engine, folder, repository } = values;
  const note = (line: string): void => void process.stderr.write(`${line}\n`);
  const program = await buildGoProgram(llmdSource, {
    folder,
    note,
    ...(repository === undefined ? {} : { repository }),
  });
  if (values.build) {
    process.stdout.write(`${program}\n`);
    return;
  }
  const ports = { clock: systemClock, scheduler: systemScheduler };
  const picker = await startLlmdPicker({ program, engineUrls: engine, plan: undefined }, ports);
  const { port, healthPort, pid } = picker;
  process.stdout.write(`${JSON.stringify({ port, healthPort, pid })}\n`);
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void picker.stop());
}
