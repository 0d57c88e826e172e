// `npm test` and `npm run test:all`. Ends with one true line: "N passed, N failed".
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { constants, setPriority } from "node:os";
import { basename, join, relative } from "node:path";
import { parseArgs } from "node:util";
import { root, setUp } from "./set-up.mjs";

const usage = `usage: npm test [-- FILE...]
       npm run test:all

npm test: format and lint, types, the unit tests of every package with property tests at a tenth of their depth, one
integration suite for each capability, and the rules of the tree. A package that has not changed since it passed, nor what it
imports, is not run again.

npm run test:all: everything, each test once: these, with property tests at their full depth, programs killed, stopped and
cut off, containers, browsers, convergence, and 300 seeds of simulated faults.

  FILE...   those test files alone
  --tests   without format, lint, types and the rules of the tree
  --runtime of these, what a release of Node may change: packages that use sockets, threads, native code, shared memory or
            Unicode, and the integration suites
  --help    this text

A test that needs what is absent (a program, captures of engines) is not run, and says so. With SKIPPED_TESTS_FAIL=true, as in
.ci/run, it counts as failed.

Exit codes: 0 all passed, 1 some failed, 2 it was called wrongly.`;

/** The seeds whose faults every commit must stand. */
const seeds = ["--seed", "312544700", "--count", "300"];

/** The other packages compute, with nothing of Node but the language. */
const runtimePackages =
  "api core engine-model engines mesh prefix-index server shared-tree testing tokenizer engine-sim router".split(" ");

const { isAll, isTests, isRuntime, files } = readFlags();
await setUp();
process.env.ESPALIER_SKIP_BUILD = "1";
process.env.TURBO_TELEMETRY_DISABLED = "1";
// What passed under one release of Node has not passed under another.
process.env.NODE_RELEASE = process.versions.node;

const known = workspaces().map((folder) => basename(folder));
const unknown = runtimePackages.filter((name) => !known.includes(name));
if (unknown.length > 0) throw new Error(`${unknown.join(", ")}: no such package; runtimePackages names it`);

const total = { passed: 0, failed: 0, skipped: 0 };
const failures = [];
if (files.length > 0) runVitest("full", files);
else if (isTests || isRuntime) {
  const folders = workspaces().filter(isChosen);
  runTasks(["test", ...folders.map((folder) => `--filter=./${folder}`)], "quick", folders);
  runVitest("quick", ["--project", "gate"]);
} else if (isAll) {
  // Deadlines of real programs: no package is tested beside them.
  const packages = workspaces().filter((folder) => folder !== "test");
  runTasks(["lint", "typecheck", "test:deep", "--filter=!@espalier/test"], "full", packages);
  const seedsRun = startSeeds();
  runTasks(["test:deep", "--filter=@espalier/test"], "full", ["test"], "full");
  await addUpSeeds(seedsRun);
} else runTasks(["lint", "typecheck", "test"], "quick", workspaces());
const { passed, skipped } = total;
for (const failure of failures) console.log(`FAILED: ${failure}`);
const failed = total.failed + (process.env.SKIPPED_TESTS_FAIL === "true" ? skipped : 0);
if (skipped > 0)
  console.log(
    `${skipped} tests were not run${failed > total.failed ? ", which SKIPPED_TESTS_FAIL counts as failed" : ""}.`,
  );
console.log(
  `${passed} passed, ${failed} failed${skipped === 0 || failed > total.failed ? "" : `, ${skipped} skipped`}`,
);
process.exit(failed === 0 ? 0 : 1);

/** Folders with tests of their own, each of which leaves reports in `.test`. */
function workspaces() {
  const grouped = ["packages", "apps"].flatMap((group) =>
    readdirSync(join(root, group)).map((name) => join(group, name)),
  );
  return [...grouped.filter((folder) => existsSync(join(root, folder, "test"))), "bench", "test"];
}

function isChosen(folder) {
  return isRuntime ? runtimePackages.includes(basename(folder)) : folder !== "test";
}

/** Has turbo run what has not passed before, and adds up what the reports say. */
function runTasks(tasks, mode, folders, logs = "errors-only") {
  const reports = folders.map((folder) => join(root, folder, ".test", `${mode}.json`));
  for (const report of reports) rmSync(report, { force: true });
  const isGreen = run("turbo", ["run", "--continue=always", "--concurrency=3", `--output-logs=${logs}`, ...tasks]);
  addUp(reports, isGreen);
}

function runVitest(mode, selection) {
  const report = join(root, "test", ".test", `${mode}.json`);
  rmSync(report, { force: true });
  process.env.TEST_DEPTH = mode;
  const options = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  addUp([report], run("vitest", ["run", ...options, ...selection]));
}

/** Programs that wait leave much of the processors idle. Seeds, whose time is virtual, take that and no more: they yield. */
function startSeeds() {
  const folder = join(root, "test", ".test");
  mkdirSync(folder, { recursive: true });
  const outputFile = join(folder, "seeds.txt");
  const output = openSync(outputFile, "w");
  const child = spawn(process.execPath, [join(root, "scripts", "simulate-seeds.mjs"), ...seeds], {
    cwd: root,
    stdio: ["ignore", output, output],
  });
  closeSync(output);
  if (child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_BELOW_NORMAL);
  return { outputFile, ended: once(child, "exit") };
}

async function addUpSeeds({ outputFile, ended }) {
  await ended;
  const output = readFileSync(outputFile, "utf8");
  process.stdout.write(output);
  const [, passedSeeds = "0", failedSeeds = "1"] = /^(\d+) seeds passed, (\d+) failed$/m.exec(output) ?? [];
  total.passed += Number(passedSeeds);
  total.failed += Number(failedSeeds);
  if (failedSeeds !== "0") failures.push("seeds of simulated faults, named above");
}

/** A file that fails to load, format and types have no tests of their own, and must not pass for a green run; nor must a report that is missing. */
function addUp(reports, isGreen) {
  const written = reports.filter((report) => existsSync(report));
  const isWhole = isGreen && written.length === reports.length;
  let failedTests = 0;
  for (const path of written) {
    const report = JSON.parse(readFileSync(path, "utf8"));
    total.passed += report.numPassedTests;
    total.skipped += report.numPendingTests + report.numTodoTests;
    failedTests += report.numFailedTests;
    failures.push(...failuresOf(report));
  }
  if (failedTests === 0 && !isWhole) failures.push("a task that has no tests, or that ended before them: see above");
  total.failed += failedTests === 0 && !isWhole ? 1 : failedTests;
}

/** A line for each test that failed and each file that could not be read: where it is, its name, and the beginning of what it says. */
function failuresOf({ testResults }) {
  return testResults.flatMap(({ name, status, message, assertionResults }) => {
    const file = relative(root, name);
    const failed = assertionResults.filter((test) => test.status === "failed");
    if (failed.length === 0) return status === "failed" ? [`${file}: ${beginningOf(message)}`] : [];
    return failed.map((test) => `${file} > ${test.fullName}: ${beginningOf(test.failureMessages[0])}`);
  });
}

function beginningOf(text = "") {
  return text
    .trim()
    .split(/\s*\n\s*/, 6)
    .join(" | ")
    .slice(0, 600);
}

function run(command, args) {
  return spawnSync(join(root, "node_modules", ".bin", command), args, { cwd: root, stdio: "inherit" }).status === 0;
}

function readFlags() {
  try {
    const { values, positionals } = parseArgs({
      options: {
        all: { type: "boolean" },
        tests: { type: "boolean" },
        runtime: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
      allowPositionals: true,
    });
    const { all, tests, runtime } = values;
    if (!values.help) return { isAll: all, isTests: tests, isRuntime: runtime, files: positionals };
    console.log(usage);
    return process.exit(0);
  } catch (error) {
    const [sentence] = error.message.split(/[.\n]/);
    console.error(`error: ${sentence}; \`npm test -- --help\` lists the flags`);
    return process.exit(2);
  }
}
