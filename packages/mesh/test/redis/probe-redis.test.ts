import { systemScheduler } from "@espalier/core";
import { expect } from "vitest";
import { probeRedis } from "../../src/redis/redis-session.ts";
import { testWithRedis } from "./redis-server.ts";
import { redisForTest } from "./rig.ts";

testWithRedis("a probe of Redis > it connects and asks > nothing is written, and no connection stays", async () => {
  const server = await redisForTest();
  await probeRedis({ url: server.url, scheduler: systemScheduler });
  expect(await server.command("DBSIZE")).toBe(0);
  // The connection of the command itself.
  expect(
    String(await server.command("CLIENT", "LIST"))
      .trim()
      .split("\n"),
  ).toHaveLength(1);
});

testWithRedis("a probe of Redis > a password that it refuses > redis_unusable, without the password", async () => {
  const server = await redisForTest("--requirepass", "right");
  const wrong = server.url.replace("redis://", "redis://:wrong-one@");
  const failure = probeRedis({ url: wrong, scheduler: systemScheduler });
  await expect(failure).rejects.toMatchObject({
    code: "redis_unusable",
    message: expect.not.stringContaining("wrong-one"),
  });
});
