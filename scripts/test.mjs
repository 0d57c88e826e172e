// `npm test`: format and lint, types of the tests, then every test. Ends with one true line: "N passed, N failed".
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ensureBuilt, root } from "./ensure-built.mjs";

ensureBuilt();
process.env.ESPALIER_SKIP_BUILD = "1";

const folder = mkdtempSync(join(tmpdir(), "espalier-test-"));
const reportFile = join(folder, "report.json");
const filters = process.argv.slice(2);

const run = (command, args) =>
  spawnSync(join(root, "node_modules", ".bin", command), args, { cwd: root, stdio: "inherit" }).status === 0;

const checks = {
  "biome check": run("biome", ["check", "."]),
  "types of tests": run("tsc", ["-p", "tsconfig.tests.json"]),
};
const vitestPassed = run("vitest", [
  "run",
  "--reporter=default",
  "--reporter=json",
  `--outputFile.json=${reportFile}`,
  ...filters,
]);
const report = readReport();
rmSync(folder, { recursive: true, force: true });

const skippedFails = process.env.CI === "true";
const failedChecks = Object.entries(checks).filter(([, passed]) => !passed);
for (const [name] of failedChecks) console.log(`FAILED: ${name}`);
const skipped = report.numPendingTests + report.numTodoTests;
if (skipped > 0) console.log(`${skipped} tests were not run${skippedFails ? ", which CI counts as failures" : ""}.`);

// A file that fails to load has no tests of its own; it still must not pass for a green run.
const silentFailure = !vitestPassed && report.numFailedTests === 0 ? 1 : 0;
const passed = report.numPassedTests + Object.keys(checks).length - failedChecks.length;
const failed = report.numFailedTests + failedChecks.length + silentFailure + (skippedFails ? skipped : 0);
console.log(`${passed} passed, ${failed} failed${skippedFails || skipped === 0 ? "" : `, ${skipped} skipped`}`);
process.exit(failed === 0 ? 0 : 1);

function readReport() {
  try {
    return JSON.parse(readFileSync(reportFile, "utf8"));
  } catch {
    return { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 };
  }
}
