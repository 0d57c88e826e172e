import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { waitFor } from "@espalier/testing";
import { onTestFinished } from "vitest";

/** How a process ended. */
export interface Outcome {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running program of this project, at the head of a process group of its own, as a shell would start it. */
export interface Program {
  readonly pid: number;
  readonly process: ChildProcess;
  stdout(): string;
  stderr(): string;
  readonly ended: Promise<Outcome>;
  kill(signal: NodeJS.Signals): void;
  /** What a terminal does on Ctrl-C: the signal goes to the program and to all that it started. */
  killGroup(signal: NodeJS.Signals): void;
  /** Waits until the output so far, standard output before standard error, fits. */
  until(pattern: RegExp, deadlineMs?: number): Promise<RegExpExecArray>;
}

export interface ProgramOptions {
  /** Added to the environment, from which everything of Espalier's is taken away first. */
  readonly env?: Readonly<Record<string, string>>;
  /** In place of `apps/router/bin/espalier.mjs`, seen from the root of the repository. */
  readonly script?: string;
  /** Files and sockets that it may have open at once. */
  readonly openFiles?: number;
  /** Whether its standard input is a pipe, which is open until `process.stdin` is ended. */
  readonly hasInput?: boolean;
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const surroundings = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ESPALIER_")));

/** Starts `espalier`; whatever it starts in turn is gone after the test. */
export function start(
  args: readonly string[],
  { env = {}, script, openFiles, hasInput }: ProgramOptions = {},
): Program {
  const node = [process.execPath, script ?? "apps/router/bin/espalier.mjs", ...args];
  const bounded =
    openFiles === undefined ? node : ["/bin/sh", "-c", `ulimit -n ${openFiles} && exec "$@"`, "sh", ...node];
  const child = spawn(bounded[0]!, bounded.slice(1), {
    cwd: root,
    detached: true,
    stdio: [hasInput ? "pipe" : "ignore", "pipe", "pipe"],
    env: { ...surroundings, ESPALIER_SKIP_BUILD: "1", ESPALIER_CONFIG: "", ...env },
  });
  const { pid } = child;
  if (pid === undefined) throw new Error("the program did not start");
  let stdout = "";
  let stderr = "";
  child.stdout!.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr!.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const ended = new Promise<Outcome>((resolve) => {
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
  const killGroup = (signal: NodeJS.Signals): void => {
    try {
      process.kill(-pid, signal);
    } catch {
      // The whole group is gone.
    }
  };
  onTestFinished(() => killGroup("SIGKILL"));
  return {
    pid,
    process: child,
    stdout: () => stdout,
    stderr: () => stderr,
    ended,
    kill: (signal) => process.kill(pid, signal),
    killGroup,
    async until(pattern, deadlineMs = 60_000) {
      const look = () => pattern.exec(stdout + stderr) ?? undefined;
      try {
        return await waitFor(look, { what: String(pattern), deadlineMs });
      } catch (error) {
        throw new Error(`${error} in:\n${stdout}\n${stderr}`);
      }
    },
  };
}

/** Runs `espalier` to its end. */
export function run(args: readonly string[], options?: ProgramOptions): Promise<Outcome> {
  return start(args, options).ended;
}

interface ProcessRow {
  readonly pid: number;
  readonly parent: number;
}

function processes(): readonly ProcessRow[] {
  const table = execFileSync("ps", ["-A", "-o", "pid=,ppid=,stat="], { encoding: "utf8" });
  return table
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , state]) => !state?.startsWith("Z"))
    .map(([pid, parent]) => ({ pid: Number(pid), parent: Number(parent) }));
}

/** The processes that a process has started and that still run. */
export function childrenOf(pid: number): readonly number[] {
  return processes()
    .filter(({ parent }) => parent === pid)
    .map((row) => row.pid);
}

/** Waits until none of the processes runs any more. */
export async function untilGone(pids: readonly number[], deadlineMs = 2_000): Promise<void> {
  const left = () => processes().filter(({ pid }) => pids.includes(pid));
  await waitFor(() => left().length === 0, { what: `end of the processes ${pids.join(", ")}`, deadlineMs });
}
