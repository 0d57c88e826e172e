import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { createClient, RESP_TYPES } from "@redis/client";
import { test } from "vitest";

/** Says in one line that tests did not run where no Redis server is installed. */
const hasRedisServer = ((): boolean => {
  if (spawnSync("redis-server", ["--version"]).status === 0) return true;
  process.stderr.write("NOT RUN: tests that need redis-server, which is not installed\n");
  return false;
})();

/** A test that needs a Redis server. */
export const testWithRedis = test.skipIf(!hasRedisServer);

/** A Redis server of the test's own, on a free port, which keeps nothing on disk. */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  /** Runs a command as another program would. */
  command(...args: (string | Buffer)[]): Promise<unknown>;
  /** Kills it, and with it all that it held. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  /** It stops answering without closing connections, until `thaw`. */
  freeze(): void;
  thaw(): void;
  close(): Promise<void>;
}

export async function startRedis(...flags: string[]): Promise<RedisServer> {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "espalier-redis-"));
  const url = `redis://127.0.0.1:${port}`;
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
    const own = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder];
    child = spawn("redis-server", [...own, ...flags], { stdio: "ignore" });
    await waitFor(() => answers(url), { what: "redis-server" });
  };
  await start();
  return {
    port,
    url,
    command: (...args) => runOnce(url, args),
    kill,
    restart: start,
    freeze: () => void child?.kill("SIGSTOP"),
    thaw: () => void child?.kill("SIGCONT"),
    async close() {
      child?.kill("SIGCONT");
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function runOnce(url: string, args: readonly (string | Buffer)[]): Promise<unknown> {
  const client = createClient({
    url,
    RESP: 2,
    socket: { reconnectStrategy: false },
    commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
  });
  client.on("error", () => {});
  await client.connect();
  try {
    return await client.sendCommand(args);
  } finally {
    client.destroy();
  }
}

/** A server with a password answers too, if only that it wants one. */
async function answers(url: string): Promise<boolean> {
  try {
    await runOnce(url, ["PING"]);
    return true;
  } catch (error) {
    return error instanceof Error && error.message.startsWith("NOAUTH");
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise<void>((resolve) => server.close(() => resolve()));
  if (typeof address !== "object" || address === null) throw new Error("no port");
  return address.port;
}
