import { spawn } from "node:child_process";
import { rmSync } from "node:fs";

/** A program of somebody else, which does not notice by itself that the bench is gone. */
export interface PeerProcess {
  readonly command: string;
  readonly arguments: readonly string[];
  /** Where it runs, and what is removed after it. */
  readonly folder: string;
}

/** What is used of this process, so that a test can be in its place. */
export interface PeerHost {
  on(event: "disconnect" | "SIGINT" | "SIGTERM" | "SIGHUP", listener: () => void): unknown;
  send?(message: object): unknown;
  exit(code: number): void;
}

/**
 * Starts the program in the place of this process: says its process id to the parent, ends with it, and kills it when the
 * parent is gone or a signal asks this process to end. What it writes goes to standard error.
 *
 * @param json a `PeerProcess`
 * @param host this process
 */
export function runPeerProcess(json: string, host: PeerHost): void {
  const { command, arguments: args, folder } = JSON.parse(json) as PeerProcess;
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
