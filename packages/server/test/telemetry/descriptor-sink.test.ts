import { spawn, spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { createLogger } from "../../src/telemetry/index.ts";

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const clean of cleanups.splice(0)) clean();
});

function createLogFile(): { readonly descriptor: number; readonly path: string; read(): string } {
  const folder = mkdtempSync(join(tmpdir(), "espalier-log-"));
  const path = join(folder, "log");
  const descriptor = openSync(path, "a");
  cleanups.push(() => {
    closeSync(descriptor);
    rmSync(folder, { recursive: true });
  });
  return { descriptor, path, read: () => readFileSync(path, "utf8") };
}

const linesOf = (text: string): Record<string, unknown>[] =>
  text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Record<string, unknown>);

test("lines reach a descriptor in the background, in order", async () => {
  const file = createLogFile();
  const logger = createLogger({ destination: file.descriptor });
  for (let at = 0; at < 100; at++) logger.info("line", { at });
  expect(linesOf(file.read()).length).toBeLessThan(100);
  await waitFor(() => linesOf(file.read()).length === 100, { what: "100 lines" });
  expect(linesOf(file.read()).map((line) => line.at)).toEqual(Array.from({ length: 100 }, (_, at) => at));
});

test("past the limit of the buffer lines are dropped, and their number is reported once there is room", async () => {
  const file = createLogFile();
  const maxBufferedBytes = 64 * 1024;
  const logger = createLogger({ destination: file.descriptor, maxBufferedBytes });
  const lineBytes = Buffer.byteLength(
    `{"level":"info","time":"2023-11-14T22:13:20.000Z","pad":"${"x".repeat(1_000)}","msg":"fill"}\n`,
  );
  const fitting = Math.floor(maxBufferedBytes / lineBytes);
  for (let line = 0; line < fitting + 5; line++) logger.info("fill", { pad: "x".repeat(1_000) });
  const report = await waitFor(() => linesOf(file.read()).find((line) => line.level === "warn"), { what: "report" });
  expect(report).toMatchObject({ msg: expect.stringContaining("dropped"), lines: 5 });
  expect(linesOf(file.read()).filter((line) => line.msg === "fill")).toHaveLength(fitting);
});

test("a buffer that was never past its limit reports nothing", async () => {
  const file = createLogFile();
  const logger = createLogger({ destination: file.descriptor, maxBufferedBytes: 64 * 1024 });
  logger.info("only");
  await waitFor(() => file.read().includes("only"), { what: "the line" });
  logger.info("last");
  await waitFor(() => file.read().includes("last"), { what: "the second line" });
  expect(linesOf(file.read()).map((line) => line.msg)).toEqual(["only", "last"]);
});

test("a descriptor that cannot be written does not throw, now or later", async () => {
  const descriptor = openSync("/dev/null", "r");
  cleanups.push(() => closeSync(descriptor));
  const logger = createLogger({ destination: descriptor });
  logger.info("lost");
  const file = createLogFile();
  const other = createLogger({ destination: file.descriptor });
  other.info("written");
  await waitFor(() => file.read().includes("written"), { what: "a write made after the failing one" });
  logger.info("lost again");
});

test("lines that cannot be written are dropped and counted, and reported once the next can be", async () => {
  const file = createLogFile();
  const logger = createLogger({ destination: file.descriptor });
  const counted: number[] = [];
  closeSync(file.descriptor);
  for (let at = 0; at < 3; at++) logger.info("lost", { at });
  logger.onDropped((lines) => counted.push(lines));
  const sum = (): number => counted.reduce((total, lines) => total + lines, 0);
  await waitFor(() => sum() === 3, { what: "three dropped lines" });
  expect(openSync(file.path, "a")).toBe(file.descriptor);
  logger.info("written");
  await waitFor(() => file.read().includes("dropped"), { what: "the report" });
  expect(linesOf(file.read())).toMatchObject([{ msg: "written" }, { level: "warn", lines: 3 }]);
  logger.info("after");
  await waitFor(() => file.read().includes("after"), { what: "the next line" });
  expect(sum()).toBe(3);
  const late: number[] = [];
  logger.onDropped((lines) => late.push(lines));
  expect(late).toEqual([3]);
});

/** Runs a program that has a logger, in a process of its own. */
function programWith(text: string): readonly string[] {
  const index = JSON.stringify(new URL("../../src/telemetry/index.ts", import.meta.url));
  return ["--input-type=module", "-e", `const { createLogger } = await import(${index});${text}`];
}

// The last lines of a process that ended were written again and again, whatever the error.
test.each([
  ["the disk is full", "2>/dev/full", 3],
  ["it is closed", "2>&-", 3],
])(
  "a process ends where %s",
  (_, redirection, status) => {
    const program = programWith(`
    const logger = createLogger();
    logger.info("line");
    process.exit(3);`);
    const shell = ["-c", `exec "$@" ${redirection}`, "sh", process.execPath, ...program];
    expect(spawnSync("/bin/sh", shell, { timeout: 25_000 }).status).toBe(status);
  },
  30_000,
);

test("a process ends where nobody reads its lines, and drops those that too many others wait before", async () => {
  const program = programWith(`
    const logger = createLogger();
    let dropped = 0;
    logger.onDropped((lines) => (dropped += lines));
    for (let at = 0; at < 6000; at++) logger.info("line", { pad: "x".repeat(1000) });
    process.stdout.write(String(dropped));
    process.exitCode = 3;`);
  const child = spawn(process.execPath, program, { stdio: ["ignore", "pipe", "pipe"] });
  cleanups.push(() => child.kill("SIGKILL"));
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  await waitFor(() => child.exitCode !== null, { what: "the end of the process", deadlineMs: 25_000 });
  expect(child.exitCode).toBe(3);
  expect(Number(output)).toBeGreaterThan(1_000);
}, 30_000);

test("standard error is the default, and what is buffered is out when the process exits", () => {
  const program = programWith(`
    const logger = createLogger();
    for (let at = 0; at < 2000; at++) logger.info("line", { at });
    process.exit(3);`);
  const run = spawnSync(process.execPath, program, { encoding: "utf8" });
  expect(run).toMatchObject({ status: 3, stdout: "" });
  const seen = linesOf(run.stderr).map((line) => line.at as number);
  expect(seen.sort((one, other) => one - other)).toEqual(Array.from({ length: 2_000 }, (_, at) => at));
}, 30_000);
