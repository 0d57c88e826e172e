import { spawn } from "node:child_process";
import { rmSync } from "node:fs";

/** Another project's program, which does not notice by itself that the bench has ended. */
export interface PeerProcess {
  readonly command: string;
  readonly arguments: readonly string[];
  /** Its working folder, which is removed afterwards. */
  readonly folder: string;
}

/** The parts of this process that are used, so that a test can replace it. */
export interface PeerHost {
  on(event: "disconnect" | "SIGINT" | "SIGTERM" | "SIGHUP", listener: () => void): unknown;
  send?(message: object): unknown;
  exit(code: number): void;
}

/**
 * Runs the program on behalf of this process. Reports its process id to the parent and ends with it. Kills it when the
 * parent is gone or a signal asks this process to end. Its output goes to standard error.
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
