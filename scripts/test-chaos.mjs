// `npm run test:chaos`: real programs, killed, stopped and cut off from each other, and what came of the requests meanwhile.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { root, setUp } from "./set-up.mjs";

const usage = `usage: npm run test:chaos -- [--json] [--older DIR] [FILE...]

Runs the tests of test/chaos, or those of the files named, and counts what was done to the programs, what was asked of
them, and what failed. Allowed failures are answers that had begun at an engine which broke off, and requests that an
engine swallowed; everything else could be retried.

  --json       one line of JSON at the end, and nothing of the tests
  --older DIR  upgrades routers of the commit that is checked out in this folder to this one under load, and back
  --help       this text

Exit codes: 0 all passed, 1 some failed, 2 it was called wrongly.`;

const { values, positionals } = readFlags();
if (values.help) {
  console.log(usage);
  process.exit(0);
}
await setUp();
const folder = mkdtempSync(join(tmpdir(), "espalier-chaos-"));
const [reportFile, testsFile] = [join(folder, "events.jsonl"), join(folder, "tests.json")];
const files = values.older === undefined ? ["test/chaos"] : ["test/chaos/upgrade.test.ts"];
const status = await run(positionals.length > 0 ? positionals : files);
const events = readEvents();
const tests = existsSync(testsFile) ? JSON.parse(readFileSync(testsFile, "utf8")) : {};
rmSync(folder, { recursive: true, force: true });
const counts = summarise();
if (values.json) console.log(JSON.stringify(counts));
else tell(counts);
process.exit(status === 0 && counts.failures === 0 && counts.lost === 0 ? 0 : 1);

function run(files) {
  const vitest = join(root, "node_modules", ".bin", "vitest");
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${testsFile}`];
  const child = spawn(vitest, ["run", "--project", "chaos", "--project", "measured", ...reporters, ...files], {
    cwd: root,
    // The tests' own lines stay to be seen where only JSON is to be on standard output.
    stdio: ["ignore", values.json ? 2 : "inherit", "inherit"],
    env: {
      ...process.env,
      ESPALIER_SKIP_BUILD: "1",
      ESPALIER_CHAOS_REPORT: reportFile,
      ...(values.older !== undefined && { ESPALIER_OLDER: resolve(values.older) }),
    },
  });
  return new Promise((resolve) => child.on("exit", resolve));
}

function readEvents() {
  if (!existsSync(reportFile)) return [];
  return readFileSync(reportFile, "utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
}

function summarise() {
  const faults = {};
  for (const { fault } of events) if (fault !== undefined) faults[fault] = (faults[fault] ?? 0) + 1;
  const sum = (key) => events.reduce((total, event) => total + (event[key] ?? 0), 0);
  return {
    tests: { passed: tests.numPassedTests ?? 0, failed: tests.numFailedTests ?? 0, notRun: tests.numPendingTests ?? 0 },
    faultsInjected: Object.values(faults).reduce((total, count) => total + count, 0),
    faults,
    requests: sum("requests"),
    completed: sum("completed"),
    allowedFailures: sum("allowedFailures"),
    failures: sum("failures"),
    lost: sum("lost"),
  };
}

function tell({ tests: { passed, failed }, faults, faultsInjected, requests, allowedFailures, failures, lost }) {
  for (const [fault, count] of Object.entries(faults)) console.log(`${String(count).padStart(6)} ${fault}`);
  console.log(
    `${faultsInjected} faults, ${requests} requests: ${failures} failed that could be retried, ${lost} lost, ` +
      `${allowedFailures} cut or swallowed; ${passed} tests passed, ${failed} failed`,
  );
}

function readFlags() {
  try {
    return parseArgs({
      options: { json: { type: "boolean" }, older: { type: "string" }, help: { type: "boolean", short: "h" } },
      allowPositionals: true,
    });
  } catch (error) {
    const [sentence] = error.message.split(/[.\n]/);
    console.error(`error: ${sentence}; \`npm run test:chaos -- --help\` lists the flags`);
    return process.exit(2);
  }
}
