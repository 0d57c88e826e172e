import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort, waitFor } from "./test-environment.ts";

const program = "redis-server";
const startTimeoutMs = 10_000;
const pingTimeoutMs = 500;

/** A Redis server for one test, on a free port, without persistence. */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  /** Its process; undefined while it is killed. */
  readonly pid: number | undefined;
  /** Kills it; its data is lost. */
  kill(): Promise<void>;
  /** Restarts it on the same port, empty. */
  restart(): Promise<void>;
  /** It stops answering without closing connections, until `thaw`. */
  freeze(): void;
  thaw(): void;
  close(): Promise<void>;
}

/**
 * Whether a Redis server is installed. If not, prints one line that tests did not run.
 *
 * @param what the tests that need it
 */
export function hasRedisServer(what: string): boolean {
  if (spawnSync(program, ["--version"]).status === 0) return true;
  process.stderr.write(`NOT RUN: ${what}; ${program} is not installed\n`);
  return false;
}

/** @param flags additional flags of the program */
export async function startRedisServer(...flags: readonly string[]): Promise<RedisServer> {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "espalier-redis-"));
  const own = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder];
  let child: ChildProcess | undefined;
  const kill = async (): Promise<void> => {
    const running = child;
    child = undefined;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    const exited = new Promise<void>((resolve) => running.once("exit", () => resolve()));
    running.kill("SIGKILL");
    await exited;
  };
  const restart = async (): Promise<void> => {
    await kill();
    child = spawn(program, [...own, ...flags], { stdio: "ignore" });
    await waitFor(() => answers(port), { what: program, deadlineMs: startTimeoutMs });
  };
  const close = async (): Promise<void> => {
    await kill();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await restart();
  } catch (error) {
    await close();
    throw error;
  }
  return {
    ...{ port, kill, restart, close, url: `redis://127.0.0.1:${port}` },
    get pid() {
      return child?.pid;
    },
    freeze: () => void child?.kill("SIGSTOP"),
    thaw: () => void child?.kill("SIGCONT"),
  };
}

/** A server with a password answers `-NOAUTH`. */
function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n"));
    socket.setTimeout(pingTimeoutMs, () => socket.destroy());
    socket.on("data", (bytes) => {
      resolve(/^(?:\+PONG|-NOAUTH)/.test(bytes.toString("latin1")));
      socket.destroy();
    });
    socket.on("error", () => resolve(false));
    socket.on("close", () => resolve(false));
  });
}
