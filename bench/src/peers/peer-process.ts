import { spawn } from "node:child_process";
import { rmSync } from "node:fs";

/** A program of somebody else, which does not notice by itself that the bench is gone. */
export interface PeerProcess {
  readonly command: string;
  readonly arguments: readonly string[];
  /** Where it runs, and what is removed after it. */
  readonly folder: string;
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * Starts the program in the place of this process: says its process id to the parent, ends with it, and kills it when the
 * parent is gone or a signal asks this process to end. What it writes goes to standard error.
 *
 * @param json a `PeerProcess`
 */
export function runPeerProcess(json: string): void {
  const { command, arguments: args, folder, environment } = JSON.parse(json) as PeerProcess;
  const child = spawn(command, [...args], {
    cwd: folder,
    env: { ...process.env, NO_PROXY: "127.0.0.1", ...environment },
    stdio: ["ignore", 2, 2],
  });
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const end = (): void => void child.kill("SIGKILL");
  process.once("disconnect", end);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, end);
  child.once("error", (error) => {
    process.stderr.write(`${error.message}\n`);
    process.exit(1);
  });
  child.once("exit", (code) => process.exit(code ?? 1));
  child.once("spawn", () => process.send?.({ type: "listening", pid: child.pid }));
}
