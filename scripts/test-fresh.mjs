// `npm run test:fresh`: what nobody has tried before, for a while: drawn seeds and changed bytes, which no gate may depend on.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ensureBuilt, root } from "./ensure-built.mjs";

const usage = `usage: npm run test:fresh -- [--minutes N]

Draws seeds of faults in virtual time, seeds of routers that converge, and changed bytes for decoders, in turns, until the
time is over or something is found. What is found prints the command that runs it again.

  --minutes N  1 to 1,440 (default 20); a turn that has begun is ended first
  --help       this text

Exit codes: 0 nothing found, 1 something was, 2 it was called wrongly.`;

/** A turn takes some minutes. */
const turns = [
  ["simulate-seeds.mjs", "--count", "100"],
  ["test-convergence.mjs", "--seeds", "16", "test/convergence/random.test.ts"],
  ["test-fuzz.mjs", "--seconds", "60"],
];

const minutes = readMinutes();
ensureBuilt();
const startMs = Date.now();
const leftMs = () => startMs + minutes * 60_000 - Date.now();
for (let turn = 0; turn === 0 || leftMs() > 0; turn++) {
  const [script, ...args] = turns[turn % turns.length];
  console.log(`${script} ${args.join(" ")}: ${Math.max(0, Math.ceil(leftMs() / 60_000))} min left`);
  const { status } = spawnSync(process.execPath, [join(root, "scripts", script), ...args], {
    cwd: root,
    stdio: "inherit",
  });
  if (status !== 0) process.exit(1);
}
console.log(`nothing found in ${Math.round((Date.now() - startMs) / 60_000)} min`);

function readMinutes() {
  try {
    const { values } = parseArgs({ options: { minutes: { type: "string" }, help: { type: "boolean", short: "h" } } });
    if (values.help) {
      console.log(usage);
      process.exit(0);
    }
    const given = values.minutes ?? "20";
    if (/^[1-9]\d{0,3}$/.test(given) && Number(given) <= 1_440) return Number(given);
    throw new Error("--minutes must be a whole number from 1 to 1440");
  } catch (error) {
    const [sentence] = error.message.split(/[.\n]/);
    console.error(`error: ${sentence}; \`npm run test:fresh -- --help\` lists the flags`);
    return process.exit(2);
  }
}
