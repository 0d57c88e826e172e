// Runs in vitest's process: which tests reach which mutant, then mutant after mutant with the tests that reach it.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { TestRunner } from "vitest";
import { startTests } from "vitest/internal/browser";

/** A test with a mutant may take this often what it takes without, and this much more: then it hangs. */
const slower = 5;
const graceMs = 2_000;
/** More often than in all tests together, a mutant is not reached by a test unless it loops. */
const loopFactor = 20;
const loopGrace = 200_000;

// Tests put clocks of their own in the place of these.
const { setTimeout, clearTimeout, setImmediate } = globalThis;
const now = performance.now.bind(performance);

const planFile = process.env.ESPALIER_MUTANTS;
const { mutants, testFiles, reportFile, coverageFile } = JSON.parse(readFileSync(planFile, "utf8"));
const report = (line) => appendFileSync(reportFile, `${JSON.stringify(line)}\n`);

/** The mutant that is switched on. */
let active;
let hitsLeft = 0;
let loops = false;
/** What is counting who reaches which mutant: called with the mutant's id. */
let noteHit;

globalThis.__mutant = (id) => {
  noteHit?.(id);
  if (id !== active) return false;
  if (hitsLeft-- > 0) return true;
  loops = true;
  throw new Error("the mutant loops");
};

/** Runs chosen tests of one file, as vitest would, and tells nobody but its caller. */
class FileRunner extends TestRunner {
  /** @type {(test: object) => boolean} */
  isWanted = () => true;
  /** @type {(test: object) => number | undefined} */
  limitMs = () => undefined;
  stopsAtFailure = false;
  failed;
  isOverdue = false;
  onTest;

  importFile(path, source) {
    for (const module of this.workerState.evaluatedModules.fileToModulesMap.get(path) ?? []) forget(module);
    return super.importFile(path, source);
  }

  onCollected(files) {
    for (const file of files) this.#choose(file);
  }

  /** @returns whether anything in it is to be run */
  #choose(task) {
    const isChosen =
      task.type === "test" ? this.isWanted(task) : task.tasks.map((child) => this.#choose(child)).some(Boolean);
    if (!isChosen && task.mode === "run") task.mode = "skip";
    return isChosen;
  }

  async onBeforeRunTask(test) {
    if (this.failed && this.stopsAtFailure) test.mode = "skip";
    await super.onBeforeRunTask(test);
    if (test.mode === "run") this.onTest?.(test);
  }

  async runTask(test) {
    const limitMs = this.limitMs(test);
    if (limitMs === undefined) return TestRunner.getTestFn(test)();
    report({ limitMs });
    let timer;
    const overdue = new Promise((_, reject) => {
      timer = setTimeout(() => {
        this.isOverdue = true;
        reject(new Error("the test hangs"));
      }, limitMs);
    });
    try {
      await Promise.race([TestRunner.getTestFn(test)(), overdue]);
    } finally {
      clearTimeout(timer);
    }
  }

  async onAfterRunTask(test) {
    await super.onAfterRunTask(test);
    if (test.result?.state === "fail") this.failed ??= test;
    this.onTest?.(undefined, test);
  }

  /** Snapshots are not written, so nobody is told of them. */
  async onAfterRunSuite(suite) {
    if (suite.result?.state === "fail" && !this.failed) this.failed = suite;
  }
}

function forget(module) {
  module.promise = undefined;
  module.exports = undefined;
  module.evaluated = false;
}

/** The runner that vitest makes. Before it looks for tests all the work is done; then it finds none. */
export default class MutantRunner extends TestRunner {
  async onBeforeCollect() {
    let errors = 0;
    const count = () => (errors += 1);
    process.on("unhandledRejection", count);
    process.on("uncaughtException", count);
    await runMutants(this, () => errors);
    report({ ended: true });
  }

  importFile() {}
}

async function runMutants(host, errorCount) {
  const { modules, runFile } = filesOf(host);
  const coverage = existsSync(coverageFile)
    ? JSON.parse(readFileSync(coverageFile, "utf8"))
    : await cover(modules, runFile);
  if (coverage.failed.length > 0) return;
  for (const { id } of mutants) {
    const startMs = now();
    const files = testsOf(coverage, id);
    const { length: tests } = files.flatMap((file) => file.tests);
    if (tests === 0) {
      report({ id, verdict: "uncovered", tests });
      continue;
    }
    report({ began: id });
    const verdict = await judge({ id, files, isStatic: coverage.statics.includes(id), hits: coverage.hits[id] ?? 0 });
    report({ id, ...verdict, tests, ms: Math.round(now() - startMs) });
    if (verdict.isSpoilt) return;
  }

  /** Whether a test notices the mutant. */
  async function judge({ id, files, isStatic, hits }) {
    const errorsBefore = errorCount();
    for (const { path, tests } of files) {
      if (isStatic) modules.forgetOwn();
      active = id;
      hitsLeft = hits * loopFactor + loopGrace;
      loops = false;
      const { failed, isOverdue } = await runFile(path, { tests, stopsAtFailure: true });
      const hasErrors = errorCount() > errorsBefore;
      active = undefined;
      if (isStatic) modules.forgetOwn();
      if (!failed && !hasErrors) continue;
      const isSpoilt = !(await passesAgain(path, tests, failed));
      return { verdict: isOverdue || loops ? "timedOut" : "killed", by: failed?.name, isSpoilt };
    }
    return { verdict: "survived" };
  }

  /** Whether what failed passes without the mutant. If not, the process is spoilt for those that follow. */
  async function passesAgain(path, tests, failed) {
    const errorsBefore = errorCount();
    const again = tests.filter(({ id }) => id === failed?.id);
    const { failed: failedAgain } = await runFile(path, {
      tests: again.length > 0 ? again : tests,
      stopsAtFailure: true,
    });
    return !failedAgain && errorCount() === errorsBefore;
  }
}

/** The files with tests that reach the mutant, those that take least time first. */
function testsOf({ tests, reached }, id) {
  const byFile = new Map(testFiles.map((path) => [path, []]));
  const ids = new Set(reached[id] ?? []);
  for (const test of tests) {
    if (ids.has(test.id)) byFile.get(test.path).push(test);
  }
  return [...byFile]
    .map(([path, tests]) => ({ path, tests, ms: tests.reduce((sum, { ms }) => sum + ms, 0) }))
    .filter(({ tests }) => tests.length > 0)
    .sort((a, b) => a.ms - b.ms);
}

/** Runs every test without a mutant, and writes down which tests reach which mutants. */
async function cover(modules, runFile) {
  const tests = [];
  const failed = [];
  const statics = new Set();
  const hits = {};
  const reached = {};
  const reach = (id, by) => {
    reached[id] ??= new Set();
    reached[id].add(by);
  };
  let current;
  noteHit = (id) => {
    hits[id] = (hits[id] ?? 0) + 1;
    if (current === undefined) statics.add(id);
    else reach(id, current);
  };
  for (const path of testFiles) {
    report({ covering: path });
    current = undefined;
    const inFile = [];
    const result = await runFile(path, {
      onCollected: () => (current = path),
      onTest: (begun, ended) => {
        current = begun?.id ?? path;
        if (ended) inFile.push({ id: ended.id, path, name: ended.name, ms: Math.ceil(ended.result.duration ?? 0) });
      },
    });
    if (result.failed) failed.push(`${path}: ${result.failed.name}`);
    tests.push(...inFile);
  }
  noteHit = undefined;
  // What runs while a module loads or in a hook is reached by every test of the file.
  for (const id of statics) {
    const file = mutants.find((mutant) => mutant.id === id).file;
    for (const path of testFiles) if (modules.imports(path, file)) reach(id, path);
  }
  for (const ids of Object.values(reached)) {
    for (const test of tests) if (ids.has(test.path)) ids.add(test.id);
  }
  const coverage = {
    tests,
    failed,
    hits,
    statics: [...statics],
    reached: Object.fromEntries(Object.entries(reached).map(([id, ids]) => [id, [...ids]])),
  };
  writeFileSync(coverageFile, JSON.stringify(coverage));
  report({ covered: true, failed });
  return coverage;
}

function filesOf(host) {
  const { evaluatedModules } = host.workerState;
  const absolute = (path) => join(host.config.root, path);
  const isOwn = (module) =>
    module.file.startsWith(join(host.config.root, "/")) && !module.file.includes("/node_modules/");
  const modules = {
    /** What the package has at the top of its modules is computed anew when they are imported the next time. */
    forgetOwn() {
      for (const module of evaluatedModules.idToModuleMap.values()) if (isOwn(module)) forget(module);
    },
    imports(from, to) {
      const seen = new Set();
      const left = [...(evaluatedModules.fileToModulesMap.get(absolute(from)) ?? [])];
      for (let module = left.pop(); module; module = left.pop()) {
        if (module.file === absolute(to)) return true;
        if (seen.has(module)) continue;
        seen.add(module);
        for (const id of module.imports) {
          const next = evaluatedModules.getModuleById(id);
          if (next) left.push(next);
        }
      }
      return false;
    },
  };

  async function runFile(path, { tests, stopsAtFailure = false, onCollected, onTest }) {
    const runner = new FileRunner({ ...host.config, passWithNoTests: true });
    for (const key of ["moduleRunner", "_otel"]) Object.defineProperty(runner, key, { value: host[key] });
    runner.stopsAtFailure = stopsAtFailure;
    runner.onTest = onTest;
    if (tests) {
      const byId = new Map(tests.map((test) => [test.id, test]));
      runner.isWanted = ({ id }) => byId.has(id);
      runner.limitMs = ({ id }) => slower * byId.get(id).ms + graceMs;
    }
    if (onCollected) runner.onBeforeRunFiles = onCollected;
    const [file] = await startTests([{ filepath: absolute(path) }], runner);
    // What a test left to come fails while nothing else runs.
    await new Promise((resolve) => setImmediate(resolve));
    const { failed, isOverdue } = runner;
    return { failed: failed ?? (file.result?.state === "fail" ? file : undefined), isOverdue };
  }
  return { modules, runFile };
}
