import { once } from "node:events";
import { connect } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { hasRedisServer, startRedisServer } from "../src/index.ts";

/** What a server says to one line. */
async function say(port: number, line: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.write(`${line}\r\n`);
  const [bytes] = (await once(socket, "data")) as [Buffer];
  return bytes.toString().trim();
}

const isInstalled = hasRedisServer("a Redis server of tests");

test.skipIf(!isInstalled)(
  "a Redis server is started, forgets when it is started anew, and is gone at the end",
  async () => {
    const server = await startRedisServer();
    onTestFinished(() => server.close());
    expect(await say(server.port, "SET a b")).toBe("+OK");
    expect(await say(server.port, "EXISTS a")).toBe(":1");
    await server.restart();
    expect(await say(server.port, "EXISTS a")).toBe(":0");
    server.freeze();
    await server.kill();
    await expect(say(server.port, "PING")).rejects.toThrow(/ECONNREFUSED/);
    await server.restart();
    await server.close();
    await expect(say(server.port, "PING")).rejects.toThrow(/ECONNREFUSED/);
  },
);

test.skipIf(!isInstalled)("one that wants a password counts as started", async () => {
  const server = await startRedisServer("--requirepass", "password");
  onTestFinished(() => server.close());
  expect(await say(server.port, "EXISTS a")).toMatch(/^-NOAUTH/);
});
