// `npm run simulate:seeds`: routers and engines in virtual time, with faults that a seed draws.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root, setUp } from "./set-up.mjs";

const maxJobs = 64;
const progressMs = 2_000;
/** With so many seeds, everything that is counted must have been reached. */
const enoughSeeds = 100;

const usage = `usage: npm run simulate:seeds -- [--seed N] [--count N] [--jobs N] [--only KINDS] [--trace] [--hashes]

Runs routers and engines in virtual time, with faults that a seed draws, and checks the tier's invariants after every step.

  --seed N      the first seed; without it one that nobody has tried before
  --count N     how many seeds, one after the other (default 1)
  --jobs N      processes at a time, at most ${maxJobs} (default: one per processor)
  --only KINDS  leaves all other kinds of faults out; names with commas between them, or none
  --trace       writes what happens, with one seed only
  --hashes      a line with the hash of all events of each seed: whether a change left what happens as it was
  --help        this text

The last line counts the seeds that passed and that failed, the one before it is a hash of all their events; for a seed that failed
it tells the command that runs it again.
Exit codes: 0 all passed, 1 some failed, 2 it was called wrongly.`;

const values = readFlags();
if (values.help) {
  console.log(usage);
  process.exit(0);
}
await setUp();
const count = wholeNumber("count", values.count ?? "1");
const first = values.seed === undefined ? Date.now() % 1_000_000_000 : wholeNumber("seed", values.seed);
const jobs = Math.min(count, maxJobs, wholeNumber("jobs", values.jobs ?? String(availableParallelism())));
if (values.trace && count > 1) fail("--trace writes about one seed only");

const folder = mkdtempSync(join(tmpdir(), "espalier-seeds-"));
const reportFiles = Array.from({ length: jobs }, (_, job) => join(folder, `${job}.jsonl`));
const traceFile = values.trace ? join(folder, "trace") : undefined;
const startMs = performance.now();
const progress = setInterval(() => tell(readReports()), progressMs);
const statuses = await Promise.all(reportFiles.map((reportFile, job) => runJob(job, reportFile)));
clearInterval(progress);
const reports = readReports();
if (traceFile && existsSync(traceFile)) process.stdout.write(readFileSync(traceFile, "utf8"));
rmSync(folder, { recursive: true, force: true });
process.exit(summarise() ? 0 : 1);

function runJob(job, reportFile) {
  const { only } = values;
  const request = {
    first: first + job,
    count: Math.ceil((count - job) / jobs),
    step: jobs,
    only,
    reportFile,
    traceFile,
  };
  const vitest = join(root, "node_modules", ".bin", "vitest");
  const child = spawn(vitest, ["run", "--project", "simulation", "test/simulation/simulation.test.ts"], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ESPALIER_SIMULATION_SEEDS: JSON.stringify(request) },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (output += bytes));
  return new Promise((resolve) => child.on("exit", (status) => resolve({ status, output })));
}

function readReports() {
  return reportFiles
    .filter((file) => existsSync(file))
    .flatMap((file) => readFileSync(file, "utf8").split("\n").slice(0, -1))
    .map((line) => JSON.parse(line));
}

function tell(done) {
  const failed = done.filter(({ error }) => error !== undefined).length;
  const seconds = Math.round((performance.now() - startMs) / 1_000);
  console.error(`${done.length} of ${count} seeds in ${seconds} s, ${failed} failed`);
}

/** @returns whether all went well */
function summarise() {
  tell(reports);
  const failures = reports.filter(({ error }) => error !== undefined);
  for (const { seed, kinds, error, command } of failures) {
    console.log(`\nFAILED: seed ${seed}, with ${kinds.join(", ")}\n${error}\nrun it again: ${command}`);
  }
  for (const { output } of statuses.filter(({ status }) => status !== 0)) console.log(output);
  const missed = missedCounts();
  if (missed.length > 0) console.log(`never reached: ${missed.join(", ")}`);
  tellHashes();
  const isComplete = reports.length === count && statuses.every(({ status }) => status === 0);
  console.log(`${reports.length - failures.length} seeds passed, ${failures.length} failed`);
  return isComplete && failures.length === 0 && missed.length === 0;
}

/** Of one seed it is the hash of its events, of several that of their hashes, in the order of the seeds. */
function tellHashes() {
  const hashed = reports.filter(({ hash }) => hash !== undefined).sort((one, other) => one.seed - other.seed);
  const text = hashed.map(({ seed, hash }) => `${seed} ${hash}`).join("\n");
  if (values.hashes) console.log(text);
  const ofAll = createHash("sha256").update(text).digest("hex").slice(0, 16);
  if (hashed.length > 0) console.log(`hash of all events: ${hashed.length === 1 ? hashed[0].hash : ofAll}`);
}

function missedCounts() {
  const totals = {};
  for (const { counts } of reports) {
    for (const [name, value] of Object.entries(counts ?? {})) totals[name] = (totals[name] ?? 0) + value;
  }
  if (reports.length > 1) console.log(JSON.stringify(totals));
  if (values.only !== undefined || reports.length < enoughSeeds) return [];
  return Object.keys(totals).filter((name) => totals[name] === 0);
}

function readFlags() {
  try {
    return parseArgs({
      options: {
        count: { type: "string" },
        seed: { type: "string" },
        jobs: { type: "string" },
        only: { type: "string" },
        trace: { type: "boolean" },
        hashes: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    }).values;
  } catch (error) {
    const [sentence] = error.message.split(/[.\n]/);
    return fail(`${sentence}; \`npm run simulate:seeds -- --help\` lists the flags`);
  }
}

function wholeNumber(flag, text) {
  if (!/^\d{1,9}$/.test(text) || (flag !== "seed" && text === "0")) {
    fail(`--${flag} must be a whole number of at most nine digits`);
  }
  return Number(text);
}

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(2);
}
