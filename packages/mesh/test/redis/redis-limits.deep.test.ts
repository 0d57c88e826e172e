import { waitFor } from "@espalier/testing";
import { expect } from "vitest";
import { defaultRedisLimits } from "../../src/redis/redis-keys.ts";
import { testWithRedis } from "./redis-server.ts";
import { converged, ready, redisForTest, startNode } from "./rig.ts";

testWithRedis("what finds no room on its channel is dropped; gauges are sent whole once there is room", async () => {
  const server = await redisForTest();
  const queueBytes = { ...defaultRedisLimits.queueBytes, load: 300 };
  const sender = await startNode(server, "a", { limits: { queueBytes } });
  const receiver = await startNode(server, "b");
  await ready(sender, receiver);
  const before = sender.incidents("message-dropped");
  for (let value = 1; value <= 40; value++) sender.replica.setLoad(value);
  expect(sender.incidents("message-dropped") - before).toBeGreaterThanOrEqual(20);
  await waitFor(() => receiver.replica.loads.get("a") === 40, { what: "the last value" });
});

testWithRedis("changes that find no room are made up for", async () => {
  const server = await redisForTest();
  const queueBytes = { ...defaultRedisLimits.queueBytes, documents: 500 };
  const writer = await startNode(server, "a", { limits: { queueBytes } });
  const reader = await startNode(server, "b");
  await ready(writer, reader);
  for (let round = 0; round < 200; round++) writer.replica.write(`item ${round}`);
  expect(writer.incidents("message-dropped")).toBeGreaterThan(0);
  await converged([writer, reader]);
  writer.replica.write("life goes on");
  await converged([writer, reader]);
});

testWithRedis("messages longer than the bound are refused", async () => {
  const server = await redisForTest();
  const node = await startNode(server, "a", { limits: { maxMessageBytes: 100 } });
  await server.command("PUBLISH", "espalier:{test}:2:all", Buffer.alloc(101, 1));
  await server.command("PUBLISH", "espalier:{test}:2:to:a", Buffer.alloc(101, 1));
  await waitFor(() => node.incidents("message-invalid") === 2, { what: "refusals" });
});

testWithRedis("one stored journal more than may be read is left alone, and counted", async () => {
  const server = await redisForTest();
  const writers = [await startNode(server, "a"), await startNode(server, "b"), await startNode(server, "c")];
  await ready(...writers);
  for (const { replica } of writers) replica.write("one");
  await converged(writers);
  for (const { backend } of writers) {
    await backend.leave();
    await backend.stop();
  }
  const enough = await startNode(server, "r", { limits: { maxSources: 3 } });
  await ready(enough);
  expect(enough.incidents("too-many-sources")).toBe(0);
  await enough.backend.stop();
  await waitFor(async () => (await server.command("EXISTS", "espalier:{test}:2:member:r")) === 0, { what: "lapse" });
  const few = await startNode(server, "s", { limits: { maxSources: 2 } });
  await ready(few);
  expect(few.incidents("too-many-sources")).toBe(1);
  const read = writers.filter(({ replica }) => few.replica.journal(replica.origin).length > 0);
  expect(read).toHaveLength(2);
});

testWithRedis("one router more than there may be is left out, and counted", async () => {
  const server = await redisForTest();
  const node = await startNode(server, "r", { limits: { maxMembers: 1 } });
  await startNode(server, "a");
  await waitFor(() => node.backend.members().length === 1, { what: "the first" });
  await startNode(server, "b");
  await waitFor(() => node.incidents("too-many-members") > 0, { what: "count" });
  expect(node.backend.members()).toHaveLength(1);
});
