import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";

/** A Redis server of the test's own, on a free port, which keeps nothing on disk. */
export interface RedisServer {
  readonly port: number;
  /** Kills it, and with it all that it held, and starts it anew. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export function hasRedisServer(): boolean {
  return spawnSync("redis-server", ["--version"]).status === 0;
}

export async function startRedisServer(): Promise<RedisServer> {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "espalier-redis-"));
  let child: ChildProcess | undefined;
  const kill = async (): Promise<void> => {
    const running = child;
    child = undefined;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    const exited = new Promise<void>((resolve) => running.once("exit", () => resolve()));
    running.kill("SIGKILL");
    await exited;
  };
  const start = async (): Promise<void> => {
    const flags = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder];
    child = spawn("redis-server", flags, { stdio: "ignore" });
    await waitFor(() => answersPing(port), { what: "redis-server" });
  };
  await start();
  return {
    port,
    async restart() {
      await kill();
      await start();
    },
    async close() {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function answersPing(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n"));
    socket.setTimeout(500, () => socket.destroy());
    socket.on("data", (bytes) => {
      resolve(bytes.toString().startsWith("+PONG"));
      socket.destroy();
    });
    socket.on("error", () => resolve(false));
    socket.on("close", () => resolve(false));
  });
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}
