import { systemClock } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { expect } from "vitest";
import { defaultRedisLimits } from "../../src/redis/redis-keys.ts";
import { testWithRedis } from "./redis-server.ts";
import { converged, inboxOf, ready, redisForTest, startNode } from "./rig.ts";

testWithRedis("what finds no room on its channel is dropped; gauges are sent whole once there is room", async () => {
  const server = await redisForTest();
  const queueBytes = { ...defaultRedisLimits.queueBytes, load: 300 };
  const sender = await startNode(server, "a", { limits: { queueBytes } });
  const receiver = await startNode(server, "b");
  await ready(sender, receiver);
  for (let value = 1; value <= 5_000; value++) sender.replica.setLoad(value);
  expect(sender.meter.value("espalier_mesh_dropped_frames_total", "load")).toBeGreaterThan(0);
  await waitFor(() => receiver.replica.loads.get("a") === 5_000, { what: "the last value" });
});

testWithRedis("changes that find no room are made up for", async () => {
  const server = await redisForTest();
  const queueBytes = { ...defaultRedisLimits.queueBytes, documents: 500 };
  const writer = await startNode(server, "a", { limits: { queueBytes } });
  const reader = await startNode(server, "b");
  await ready(writer, reader);
  for (let round = 0; round < 400; round++) writer.replica.write(`item ${round} ${"x".repeat(1_000)}`);
  expect(writer.meter.value("espalier_mesh_dropped_frames_total", "documents")).toBeGreaterThan(0);
  await converged([writer, reader]);
  writer.replica.write("life goes on");
  await converged([writer, reader]);
});

testWithRedis("messages longer than the bound are refused", async () => {
  const server = await redisForTest();
  const node = await startNode(server, "a", { limits: { maxFrameBytes: 100 } });
  for (const bytes of [1_000, 2_000]) {
    await server.command("PUBLISH", await inboxOf(server, "a"), Buffer.alloc(bytes, 1));
  }
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
  const held = () => server.command("ZCOUNT", "espalier:{test}:3:living", String(systemClock.wallMs()), "+inf");
  await waitFor(async () => (await held()) === 0, { what: "lapse" });
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
