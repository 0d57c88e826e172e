// Runs chosen mutants of a package in a process of their own, which is begun anew when one of them hangs it.
import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { root } from "../set-up.mjs";

const config = fileURLToPath(new URL("vitest.mutants.mjs", import.meta.url));
const pollMs = 50;
/** Without a line of the runner for this long, and for as long as the test may take that it has begun, it hangs. */
const silentMs = 15_000;
/** Loading all modules and running all tests of one file without a mutant. */
const coverMs = 180_000;

/**
 * @param {object} plan
 * @param {string} plan.folder of the package, from the root
 * @param {readonly { id: number, file: string, index: number }[]} plan.mutants
 * @param {readonly string[]} plan.testFiles paths from the folder
 * @param {(results: ReadonlyMap<number, object>, step: string) => void} onProgress
 * @param {AbortSignal} signal ends it early: what has been found so far is returned
 * @returns verdicts by id: `killed`, `timedOut`, `survived`, `uncovered`
 * @throws when a test fails without any mutant, or tests cannot be run at all
 */
export async function runMutants({ folder, mutants, testFiles }, onProgress, signal) {
  const scratch = mkdtempSync(join(tmpdir(), "espalier-mutants-"));
  const files = Object.fromEntries(["plan", "report", "coverage"].map((name) => [name, join(scratch, name)]));
  const results = new Map();
  const triedAgain = new Set();
  let emptyRuns = 0;
  try {
    for (let left = mutants; left.length > 0 && !signal.aborted; left = mutants.filter(({ id }) => !results.has(id))) {
      const before = results.size + triedAgain.size;
      const plan = { mutants: left, testFiles, reportFile: files.report, coverageFile: files.coverage };
      writeFileSync(files.plan, JSON.stringify(plan));
      writeFileSync(files.report, "");
      const output = await runProcess(files, join(root, folder), results, triedAgain, onProgress, signal);
      emptyRuns = results.size + triedAgain.size > before ? 0 : emptyRuns + 1;
      if (emptyRuns > 1 && !signal.aborted) throw new Error(`the tests cannot be run:\n${output}`);
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  return results;
}

/** @returns what vitest wrote, once it has ended or was ended */
async function runProcess(files, folder, results, triedAgain, onProgress, signal) {
  const child = spawn(join(root, "node_modules", ".bin", "vitest"), ["run", "--config", config, "--root", "."], {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    env: { ...process.env, ESPALIER_MUTANTS: files.plan },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (bytes) => (output = (output + bytes).slice(-20_000)));
  const state = {
    began: undefined,
    deadlineMs: performance.now() + coverMs,
    hasEnded: false,
    failed: [],
    step: "starting",
  };
  const reader = openSync(files.report, "r");
  let rest = "";
  const read = () => {
    rest += readNew(reader);
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) take(JSON.parse(line), state, results, triedAgain);
    if (lines.length > 0) onProgress(results, state.step);
  };
  // What hangs takes no signal of its own accord: its whole group is ended.
  const end = () => process.kill(-child.pid, "SIGKILL");
  const poll = setInterval(() => {
    read();
    if (state.hasEnded || signal.aborted) end();
    else if (performance.now() > state.deadlineMs) {
      if (state.began !== undefined) results.set(state.began, { verdict: "timedOut" });
      end();
    }
  }, pollMs);
  await new Promise((resolve) => child.once("exit", resolve));
  clearInterval(poll);
  try {
    end();
  } catch {} // The group is gone.
  read();
  closeSync(reader);
  if (state.failed.length > 0) throw new Error(`fails without any mutant:\n${state.failed.join("\n")}`);
  return output;
}

function readNew(reader) {
  const buffer = Buffer.alloc(65_536);
  let text = "";
  for (let size = readSync(reader, buffer); size > 0; size = readSync(reader, buffer))
    text += buffer.toString("utf8", 0, size);
  return text;
}

function take(line, state, results, triedAgain) {
  const { id, verdict } = line;
  state.deadlineMs = performance.now() + silentMs + (line.limitMs ?? 0);
  if (line.covering !== undefined) {
    state.step = `without mutants: ${line.covering}`;
    state.deadlineMs = performance.now() + coverMs;
  }
  if (line.failed) state.failed = line.failed;
  if (line.began !== undefined) {
    state.began = line.began;
    state.step = "";
  }
  if (line.ended) state.hasEnded = true;
  if (verdict === undefined) return;
  state.began = undefined;
  // The test that failed also failed without the mutant then: what was left of an earlier one may have failed it.
  if (line.isSpoilt && !triedAgain.has(id)) triedAgain.add(id);
  else results.set(id, line);
}
