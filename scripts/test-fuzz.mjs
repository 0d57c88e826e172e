// `npm run test:fuzz`: changed bytes for every decoder of what others write.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root, setUp } from "./set-up.mjs";

/** Files that are run at a time, as in vitest.config.ts. */
const jobs = 2;
/** Beyond the time asked for: the start of the files, and a last case that takes long. Then a decoder hangs. */
const spareMs = 120_000;

const usage = `usage: npm run test:fuzz -- [--seconds N] [--seed N] [--decoder NAME] [--case N] [--json]

Changes bytes that decoders read (real captures where they are at hand), and has them read the result: they may refuse
it with their documented error; any other error, a hang, or a result past its bounds is a finding.

  --seconds N     for all decoders together (default 60)
  --seed N        without it one that nobody has tried before
  --decoder NAME  that one only
  --case N        that case of it only; with --seed and --decoder
  --json          one line of JSON
  --help          this text

For a finding it tells the command that runs the case again.
Exit codes: 0 nothing found, 1 something was, 2 it was called wrongly.`;

const values = readFlags();
if (values.help) {
  console.log(usage);
  process.exit(0);
}
await setUp();
const seconds = wholeNumber("seconds", values.seconds ?? "60");
const seed = values.seed === undefined ? Date.now() % 1_000_000_000 : wholeNumber("seed", values.seed);
const { decoder } = values;
const firstCase = values.case === undefined ? undefined : wholeNumber("case", values.case);
if (firstCase !== undefined && (decoder === undefined || values.seed === undefined)) {
  fail("--case needs --seed and --decoder");
}

const files = ["packages", "apps"].flatMap(fuzzFiles);
const folder = mkdtempSync(join(tmpdir(), "espalier-fuzz-"));
const reportFile = join(folder, "report.jsonl");
const fileMs = (seconds * 1_000) / (decoder === undefined ? Math.ceil(files.length / jobs) : 1);
const { status, output, hung } = await run({ seed, fileMs, reportFile, decoder, case: firstCase });
const lines = existsSync(reportFile) ? readFileSync(reportFile, "utf8").trim().split("\n") : [];
rmSync(folder, { recursive: true, force: true });
process.exit(summarise(lines.filter(Boolean).map((line) => JSON.parse(line))) ? 0 : 1);

function fuzzFiles(parent) {
  return readdirSync(join(root, parent)).flatMap((name) => {
    const tests = join(parent, name, "test");
    if (!existsSync(join(root, tests))) return [];
    return readdirSync(join(root, tests), { recursive: true })
      .filter((file) => file.endsWith(".fuzz.test.ts"))
      .map((file) => join(tests, file));
  });
}

function run(request) {
  const vitest = join(root, "node_modules", ".bin", "vitest");
  const child = spawn(vitest, ["run", "--project", "unit", ...files], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    env: { ...process.env, ESPALIER_FUZZ: JSON.stringify(request) },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (output += bytes));
  let hung = false;
  // A thread that spins takes no signal of its own accord: its whole group is ended.
  const end = () => process.kill(-child.pid, "SIGKILL");
  const timer = setTimeout(
    () => {
      hung = true;
      end();
    },
    seconds * 1_000 + spareMs,
  );
  process.once("SIGINT", end);
  return new Promise((resolve) =>
    child.on("close", (status) => {
      clearTimeout(timer);
      resolve({ status, output, hung });
    }),
  );
}

/** @returns whether all went well */
function summarise(reported) {
  const reports = reported.filter(({ cases }) => cases !== undefined);
  const ended = new Set(reported.map(({ name }) => name));
  const hanging = hung ? reported.filter(({ began }) => began !== undefined && !ended.has(began)) : [];
  const findings = [
    ...reported.filter(({ finding }) => finding !== undefined).map(({ finding }) => finding),
    ...hanging.map(
      ({ began }) => `${began} hangs; run it again: npm run test:fuzz -- --decoder "${began}" --seed ${seed}`,
    ),
  ];
  const cases = reports.reduce((sum, report) => sum + report.cases, 0);
  const isKnown = decoder === undefined || reported.length > 0;
  if (values.json) console.log(JSON.stringify({ seed, seconds, decoders: reports.length, cases, reports, findings }));
  else tell(reports, findings);
  if (!isKnown) console.error(`error: no decoder is called ${decoder}`);
  if (findings.length === 0 && status !== 0) console.error(output);
  if (!values.json)
    console.log(`${reports.length} decoders, ${cases} cases, seed ${seed}: ${findings.length} findings`);
  return isKnown && status === 0 && findings.length === 0;
}

function tell(reports, findings) {
  for (const { name, cases, refused, slowestMs } of reports) {
    const columns = [name.padEnd(44), String(cases).padStart(9), String(refused).padStart(9)];
    console.log(`${columns.join(" ")} refused, slowest ${slowestMs.toFixed(1)} ms`);
  }
  for (const finding of findings) console.log(`\nFOUND: ${finding}`);
}

function readFlags() {
  try {
    return parseArgs({
      options: {
        seconds: { type: "string" },
        seed: { type: "string" },
        decoder: { type: "string" },
        case: { type: "string" },
        json: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    }).values;
  } catch (error) {
    const [sentence] = error.message.split(/[.\n]/);
    return fail(`${sentence}; \`npm run test:fuzz -- --help\` lists the flags`);
  }
}

function wholeNumber(flag, text) {
  if (!/^\d{1,9}$/.test(text) || (flag === "seconds" && text === "0")) {
    fail(`--${flag} must be a whole number of at most nine digits`);
  }
  return Number(text);
}

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(2);
}
