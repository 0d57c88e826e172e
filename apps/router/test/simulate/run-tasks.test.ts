import { readFileSync } from "node:fs";
import { EspalierError } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { runTasks } from "../../src/simulate/run-tasks.ts";
import { temporaryFile } from "../temporary.ts";

interface Task {
  readonly kind: "good" | "fails" | "refuses" | "crashes" | "hangs" | "progresses";
  readonly value: number;
}

/** A child whose tasks end as they say. It writes its process id to a file, a line for each task. */
function program(pidFile: string): string {
  return temporaryFile(
    "child.mjs",
    `import { appendFileSync } from "node:fs";
    process.on("SIGINT", () => {});
    process.on("message", ({ kind, value }) => {
      appendFileSync(${JSON.stringify(pidFile)}, process.pid + "\\n");
      if (kind === "good") process.send({ type: "result", result: { value, nan: NaN, series: Float64Array.of(value) } });
      if (kind === "fails") process.send({ type: "failure", message: "it does not fit", code: "config_invalid" });
      if (kind === "refuses") process.send({ type: "failure", message: "no such thing", code: undefined });
      if (kind === "crashes") { console.error("out of memory"); process.exit(9); }
      if (kind === "hangs") for (;;);
      if (kind === "progresses") {
        for (const share of [0.25, 0.5, 1]) process.send({ type: "progress", share });
        process.send({ type: "result", result: { value } });
      }
    });`,
  );
}

interface Result {
  readonly value: number;
}

async function run(kinds: readonly Task["kind"][], size: number, controller = new AbortController()) {
  const pidFile = temporaryFile("pids", "");
  const tasks = kinds.map((kind, value): Task => ({ kind, value }));
  const results = new Map<number, Result>();
  const failures = new Map<number, Error>();
  const progress: (readonly [number, number])[] = [];
  const pids = (): readonly number[] => readFileSync(pidFile, "utf8").trim().split("\n").filter(Boolean).map(Number);
  onTestFinished(() => controller.abort());
  const ended = runTasks<Task, Result>(tasks, {
    size,
    program: program(pidFile),
    signal: controller.signal,
    onProgress: (at, share) => progress.push([at, share]),
    onResult: (at, result) => results.set(at, result),
    onFailure: (at, error) => failures.set(at, error),
  });
  return { ended, results, failures, progress, pids };
}

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

test("every task is run once, in as many children as there may be, which are gone then", async () => {
  const { ended, results, failures, pids } = await run(Array(12).fill("good"), 3);
  await ended;
  expect([...results.keys()].sort((one, other) => one - other)).toEqual(Array.from({ length: 12 }, (_, at) => at));
  for (const [at, { value }] of results) expect(value).toBe(at);
  expect(failures.size).toBe(0);
  expect(pids()).toHaveLength(12);
  const children = new Set(pids());
  expect(children.size).toBeLessThanOrEqual(3);
  for (const pid of children) expect(isRunning(pid)).toBe(false);
});

test("no more children than tasks, and none for nothing", async () => {
  const one = await run(["good"], 8);
  await one.ended;
  expect(new Set(one.pids()).size).toBe(1);
  const none = await run([], 8);
  await none.ended;
  expect(none.pids()).toEqual([]);
});

test("what JSON has no word for comes over as it is", async () => {
  const { ended, results } = await run(["good"], 1);
  await ended;
  expect(results.get(0)).toEqual({ value: 0, nan: Number.NaN, series: Float64Array.of(0) });
});

test("progress is told by task", async () => {
  const { ended, progress } = await run(["good", "progresses"], 1);
  await ended;
  expect(progress).toEqual([
    [1, 0.25],
    [1, 0.5],
    [1, 1],
  ]);
});

test("a task that fails keeps its error, and its child", async () => {
  const { ended, results, failures, pids } = await run(["fails", "good", "refuses"], 1);
  await ended;
  expect([...results.keys()]).toEqual([1]);
  expect(failures.get(0)).toBeInstanceOf(EspalierError);
  expect(failures.get(0)).toMatchObject({ code: "config_invalid", message: "it does not fit" });
  expect(failures.get(2)).toEqual(new Error("no such thing"));
  expect(new Set(pids()).size).toBe(1);
});

test("a child that dies over a task takes that task alone with it; another one goes on", async () => {
  const { ended, results, failures, pids } = await run(["good", "crashes", "good", "crashes", "good"], 1);
  await ended;
  expect([...results.keys()]).toEqual([0, 2, 4]);
  expect([...failures.keys()]).toEqual([1, 3]);
  expect(failures.get(1)?.message).toBe("the process of the run exited with code 9\nout of memory");
  expect(new Set(pids()).size).toBe(3);
});

test("a program that is not there is a failure of each task", async () => {
  const failures: string[] = [];
  await runTasks([{}, {}], {
    size: 1,
    program: "/nowhere/child.mjs",
    signal: new AbortController().signal,
    onProgress: () => {},
    onResult: () => failures.push("it has a result"),
    onFailure: (_, error) => failures.push(error.message),
  });
  expect(failures).toHaveLength(2);
  for (const message of failures) expect(message).toContain("the process of the run exited with code 1");
});

test("given up, children that are too busy to notice are ended as well, and nothing more is told", async () => {
  const controller = new AbortController();
  const { ended, results, failures, pids } = await run(["good", "hangs", "hangs", "good"], 2, controller);
  await waitFor(() => pids().length === 3, { what: "three tasks begun" });
  controller.abort();
  await ended;
  expect(results.size).toBe(1);
  expect(failures.size).toBe(0);
  for (const pid of pids()) expect(isRunning(pid)).toBe(false);
});

test("given up before it began, it starts nothing", async () => {
  const controller = new AbortController();
  controller.abort();
  const { ended, pids } = await run(["good"], 1, controller);
  await ended;
  expect(pids()).toEqual([]);
});
