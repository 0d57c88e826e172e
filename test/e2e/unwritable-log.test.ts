import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { waitFor } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** What a program sends to its parent when it serves. */
interface Listening {
  readonly url?: string;
  readonly adminUrl?: string;
  readonly engines?: readonly { readonly url: string }[];
}

interface Started {
  readonly child: ChildProcess;
  readonly listening: Listening;
}

/** Starts a program by way of a shell that changes where its output goes. */
async function startIn(shell: string, script: string, ...args: string[]): Promise<Started> {
  const child = spawn("/bin/sh", ["-c", shell, "sh", process.execPath, script, ...args], {
    cwd: root,
    stdio: ["ignore", "ignore", "pipe", "ipc"],
    env: { ...process.env, ESPALIER_SKIP_BUILD: "1" },
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  // Only what the shell leaves on the pipe comes here, and each test says whether somebody reads it.
  const [listening] = (await Promise.race([once(child, "message"), once(child, "exit")])) as [Listening];
  expect(listening, `${script} ended before it served`).toBeTypeOf("object");
  return { child, listening };
}

async function endOf(child: ChildProcess): Promise<number | null> {
  child.kill("SIGTERM");
  await waitFor(() => child.exitCode !== null || child.signalCode !== null, { what: "its end", deadlineMs: 30_000 });
  return child.exitCode;
}

const serveArgs = ["serve", "--listen-port", "0", "--admin-port", "0", "--drain-delay", "0ms", "--log-level", "debug"];

async function serveIn(shell: string): Promise<Started> {
  return startIn(shell, "apps/router/bin/espalier.mjs", ...serveArgs, "--engine", "http://127.0.0.1:1");
}

async function droppedLines({ adminUrl }: Listening): Promise<number> {
  const page = await (await fetch(`${adminUrl}/metrics`)).text();
  return Number(/^espalier_log_dropped_lines_total (\d+)$/m.exec(page)?.[1]);
}

/** It answers clients and operators, whatever becomes of its log. */
async function expectService({ url, adminUrl }: Listening): Promise<void> {
  for (let count = 0; count < 20; count++) {
    const body = JSON.stringify({ model: "none", messages: [] });
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(await answer.json()).toHaveProperty("error");
  }
  for (let count = 0; count < 5; count++) {
    expect((await fetch(`${adminUrl}/admin/reload`, { method: "POST" })).status).toBeLessThan(500);
  }
}

// A line that could not be written was tried again for ever when the process ended, and an error of standard error ended
// it: a router whose log's disk was full hung at the start, or at its end.
describe("a router whose log cannot be written", () => {
  test("because the disk is full serves, counts what is lost, and ends", async () => {
    const { child, listening } = await serveIn('exec "$@" 2>/dev/full');
    await expectService(listening);
    expect(await droppedLines(listening)).toBeGreaterThan(0);
    expect(await endOf(child)).toBe(0);
  }, 60_000);

  test("because a file has become as large as it may be serves, counts what is lost, and ends", async () => {
    const folder = mkdtempSync(join(tmpdir(), "espalier-log-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const log = join(folder, "log");
    const { child, listening } = await serveIn(`trap '' XFSZ; ulimit -f 1; exec "$@" 2>${log}`);
    const isFull = async (): Promise<boolean> => {
      await expectService(listening);
      return (await droppedLines(listening)) > 0;
    };
    await waitFor(isFull, { what: "a full log", deadlineMs: 30_000 });
    expect(statSync(log).size).toBeGreaterThan(0);
    await expectService(listening);
    expect(await endOf(child)).toBe(0);
  }, 90_000);

  test("because its reader has ended serves, counts what is lost, and ends", async () => {
    const { child, listening } = await serveIn('exec "$@"');
    child.stderr!.destroy();
    await expectService(listening);
    await waitFor(async () => (await droppedLines(listening)) > 0, { what: "dropped lines" });
    expect(await endOf(child)).toBe(0);
  }, 60_000);

  test("because nobody reads it serves, and ends", async () => {
    const { child, listening } = await serveIn('exec "$@"');
    await expectService(listening);
    expect(await endOf(child)).toBe(0);
  }, 60_000);
});

test("engine-sim serves and ends where neither of its outputs can be written", async () => {
  const shell = 'exec "$@" >/dev/full 2>/dev/full';
  const { child, listening } = await startIn(shell, "apps/engine-sim/bin/engine-sim.mjs", "--port", "0");
  expect((await fetch(`${listening.engines![0]!.url}/health`)).status).toBe(200);
  expect(await endOf(child)).toBe(0);
}, 60_000);
