import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePorts } from "./free-ports.ts";
import { untilNothingMissing, type WaitPorts } from "./until.ts";

/** A private Redis server that keeps nothing on disk. */
export interface RedisServer {
  readonly url: string;
  stop(): Promise<void>;
}

const program = "redis-server";
const startTimeoutMs = 5_000;

/**
 * Starts a real Redis server on a free port.
 *
 * @returns undefined when none is installed
 * @throws Error when it does not answer
 */
export async function startRedisServer(ports: WaitPorts): Promise<RedisServer | undefined> {
  if (spawnSync(program, ["--version"]).status !== 0) return undefined;
  const [port = 0] = await freePorts(1);
  const folder = mkdtempSync(join(tmpdir(), "espalier-bench-redis-"));
  const flags = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder];
  const child = spawn(program, flags, { stdio: "ignore" });
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const end = (): boolean => child.kill("SIGKILL");
  // A server without its parent would run forever.
  process.once("exit", end);
  const stop = async (): Promise<void> => {
    process.off("exit", end);
    if (child.exitCode === null && child.signalCode === null) {
      end();
      await exited;
    }
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const missing = async () => ((await accepts(port)) ? undefined : `${program} does not listen at port ${port}`);
    await untilNothingMissing(missing, startTimeoutMs, ports);
  } catch (thrown) {
    await stop();
    throw thrown;
  }
  return { url: `redis://127.0.0.1:${port}`, stop };
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    const settle = (isOpen: boolean) => (): void => {
      socket.destroy();
      resolve(isOpen);
    };
    socket.once("connect", settle(true)).once("error", settle(false));
  });
}
