import { waitFor } from "@espalier/testing";
import { expect } from "vitest";
import { testWithRedis } from "./redis-server.ts";
import { converged, ready, redisForTest, startNode } from "./rig.ts";

testWithRedis(
  "one message more than may be on its way is dropped; gauges are sent whole once there is room",
  async () => {
    const server = await redisForTest();
    const sender = await startNode(server, "a", { limits: { maxPublishing: 8 } });
    const receiver = await startNode(server, "b");
    await ready(sender, receiver);
    const before = sender.incidents("message-dropped");
    for (let value = 1; value <= 8; value++) sender.replica.setLoad(value);
    for (let value = 9; value <= 20; value++) sender.replica.setLoad(value);
    expect(sender.incidents("message-dropped") - before).toBeGreaterThanOrEqual(12);
    await waitFor(() => receiver.replica.loads.get("a") === 20, { what: "the last value" });
  },
);

testWithRedis("messages longer than the bound are refused", async () => {
  const server = await redisForTest();
  const node = await startNode(server, "a", { limits: { maxMessageBytes: 100 } });
  await server.command("PUBLISH", "espalier:{test}:load", Buffer.alloc(101, 1));
  await server.command("PUBLISH", "espalier:{test}:control", Buffer.alloc(101, 1));
  await waitFor(() => node.incidents("load-invalid") === 1 && node.incidents("message-invalid") === 1, {
    what: "refusals",
  });
});

testWithRedis("one journal more than may be read is left alone, and counted", async () => {
  const server = await redisForTest();
  const reader = await startNode(server, "r", { limits: { maxSources: 2 } });
  const writers = [await startNode(server, "a"), await startNode(server, "b")];
  for (const { replica } of writers) replica.write("one");
  await converged([reader, ...writers]);
  expect(reader.incidents("too-many-sources")).toBe(0);
  await startNode(server, "c");
  await waitFor(() => reader.incidents("too-many-sources") > 0, { what: "count" });
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

testWithRedis("requests beyond those that may wait become one request for all that they ask", async () => {
  const server = await redisForTest();
  const holder = await startNode(server, "a", {
    prepare: ({ state }) => {
      for (let at = 0; at < 30; at++) state.add(`t${at}`);
    },
  });
  await ready(holder);
  const asker = await startNode(server, "b", { limits: { maxSnapshotRequests: 2 } });
  await ready(asker);
  const before = asker.replica.imported.length;
  for (let at = 0; at < 30; at++) asker.replica.request({ targets: [`t${at}`], from: undefined });
  const asked = (): string[] => asker.replica.imported.slice(before).flat();
  await waitFor(() => asked().length === 30, { what: "all targets" });
  expect(asker.replica.imported.length - before).toBe(3);
});

testWithRedis("a snapshot of more frames than the bound is given up", async () => {
  const server = await redisForTest();
  const holder = await startNode(server, "a", {
    prepare: ({ state }) => {
      for (let at = 0; at < 4; at++) state.add(`t${at}`);
    },
  });
  await ready(holder);
  const limits = { maxSnapshotFrames: 4, snapshotAttempts: 1 };
  const asker = await startNode(server, "b", { limits });
  await ready(asker);
  asker.replica.request({ targets: ["t0", "t1", "t2"], from: undefined });
  await waitFor(() => asker.replica.imported.length === 1, { what: "three targets" });
  asker.replica.request({ targets: ["t0", "t1", "t2", "t3"], from: undefined });
  await waitFor(() => asker.incidents("snapshot-failed") >= 1, { what: "refusal" });
});

testWithRedis("a request that names one target more than the bound is one for everything", async () => {
  const server = await redisForTest();
  const holder = await startNode(server, "a", {
    prepare: ({ state }) => void ["x", "y", "z"].map((t) => state.add(t)),
  });
  await ready(holder);
  const asker = await startNode(server, "b", { limits: { maxSnapshotTargets: 2 } });
  await ready(asker);
  asker.replica.request({ targets: ["x", "y"], from: undefined });
  await waitFor(() => asker.replica.imported.length === 2, { what: "two targets" });
  expect(asker.replica.imported[1]).toEqual(["x", "y"]);
  asker.replica.request({ targets: ["x", "y", "w"], from: undefined });
  await waitFor(() => asker.replica.imported.length === 3, { what: "everything" });
  expect(asker.replica.imported[2]).toEqual(["x", "y", "z"]);
});
