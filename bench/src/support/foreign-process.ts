import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { startChild } from "espalier-router";
import type { CorePlan } from "./cpu-pinning.ts";
import { untilNothingMissing, type WaitPorts } from "./until.ts";

/** Another project's program, which does not notice by itself that the bench has ended. */
interface ForeignProcess {
  readonly command: string;
  readonly arguments: readonly string[];
  /** Its working folder, which is removed afterwards. */
  readonly folder: string;
}

/** The parts of this process that are used, so that a test can replace it. */
export interface ForeignHost {
  on(event: "disconnect" | "SIGINT" | "SIGTERM" | "SIGHUP", listener: () => void): unknown;
  send?(message: object): unknown;
  exit(code: number): void;
}

/**
 * Runs the program on behalf of this process. Reports its process id to the parent and ends with it. Kills it when the
 * parent is gone or a signal asks this process to end. Its output goes to standard error.
 *
 * @param json a `ForeignProcess`
 * @param host this process
 */
export function runForeignProcess(json: string, host: ForeignHost): void {
  const { command, arguments: args, folder } = JSON.parse(json) as ForeignProcess;
  const child = spawn(command, [...args], {
    cwd: folder,
    stdio: ["ignore", 2, 2],
  });
  const exit = (code: number): void => {
    rmSync(folder, { recursive: true, force: true });
    host.exit(code);
  };
  const end = (): void => void child.kill("SIGKILL");
  for (const event of ["disconnect", "SIGINT", "SIGTERM", "SIGHUP"] as const) host.on(event, end);
  child.once("error", (error) => {
    process.stderr.write(`${error.message}\n`);
    exit(1);
  });
  child.once("exit", (code) => exit(code ?? 1));
  child.once("spawn", () => host.send?.({ type: "listening", pid: child.pid }));
}

export interface ForeignProgram {
  readonly name: string;
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** Additions to its environment, as `NAME=VALUE`. */
  readonly variables?: readonly string[];
  /** Its working folder, which is removed afterwards. */
  readonly folder: string;
  /** The core that it may use; all cores when undefined. */
  readonly plan: CorePlan | undefined;
  readonly startTimeoutMs: number;
}

/**
 * Starts a program in a process that ends it with the bench, and waits until nothing is missing.
 *
 * @throws Error with its last output when it ends, or with what is missing after `startTimeoutMs`
 */
export async function startForeignProgram(
  { name, command, variables = [], folder, plan, startTimeoutMs }: ForeignProgram,
  missing: () => Promise<string | undefined>,
  ports: WaitPorts,
): Promise<{ readonly pid: number; stop(): Promise<void> }> {
  // `env` and `taskset` replace themselves with the program, so the process started here is the program's.
  const pinned = plan ? ["taskset", "-c", plan.router.join(",")] : [];
  const started: ForeignProcess = { command: "env", arguments: [...variables, ...pinned, ...command], folder };
  const child = await startChild<{ readonly pid: number }>({
    name,
    program: fileURLToPath(new URL("../programs/foreign.ts", import.meta.url)),
    arguments: [JSON.stringify(started)],
  });
  let hasExited = false;
  void child.exited.then(() => {
    hasExited = true;
  });
  const stillMissing = async (): Promise<string | undefined> => {
    if (hasExited) throw new Error(`${name} ended while it was starting`);
    return missing();
  };
  try {
    await untilNothingMissing(stillMissing, startTimeoutMs, ports);
  } catch (thrown) {
    await child.stop();
    throw thrown;
  }
  return { pid: child.listening.pid, stop: child.stop };
}
