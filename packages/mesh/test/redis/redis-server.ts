import { hasRedisServer, type RedisServer, startRedisServer } from "@espalier/testing";
import { createClient, RESP_TYPES } from "@redis/client";
import { test } from "vitest";

/** A test that needs a Redis server. */
export const testWithRedis = test.skipIf(!hasRedisServer("the mesh by way of Redis"));

/** A server that takes commands from tests. */
export interface CommandedRedis extends RedisServer {
  /** Runs a command as another program would. */
  command(...args: (string | Buffer)[]): Promise<unknown>;
}

export async function startRedis(...flags: string[]): Promise<CommandedRedis> {
  const server = await startRedisServer(...flags);
  return { ...server, command: (...args) => runOnce(server.url, args) };
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
