import { waitFor } from "@espalier/testing";
import { expect } from "vitest";
import { type CommandedRedis, testWithRedis } from "./redis-server.ts";
import { converged, inboxOf, makeNode, type Node, ready, redisForTest, startNode, stateOf } from "./rig.ts";

async function pairOn(server: CommandedRedis): Promise<[Node, Node]> {
  const nodes: [Node, Node] = [await startNode(server, "a"), await startNode(server, "b")];
  await waitFor(() => nodes.every(({ backend }) => backend.members().length === 1), { what: "members" });
  await ready(...nodes);
  for (const { replica } of nodes) for (let round = 0; round < 20; round++) replica.write(`${round}`);
  await converged(nodes);
  return nodes;
}

/** Whether anybody was ever taken for dead. */
function watchDeaths(nodes: readonly Node[]): () => boolean {
  let isAnyDead = false;
  for (const { backend } of nodes) {
    backend.onMembers(() => {
      isAnyDead ||= backend.members().some(({ state }) => state === "down");
    });
  }
  return () => isAnyDead;
}

const journalKeys = async (server: CommandedRedis, router: string): Promise<string[]> =>
  ((await server.command("KEYS", `espalier:{test}:3:journal:${router}:*`)) as Buffer[]).map((key) => key.toString());

testWithRedis("after a flush every writer publishes its own again, and a newcomer gets all", async () => {
  const server = await redisForTest();
  const nodes = await pairOn(server);
  const isAnyDead = watchDeaths(nodes);
  nodes[0].replica.register("kept");
  await converged(nodes);
  await server.command("FLUSHALL");
  nodes[0].replica.write("right after the flush");
  await waitFor(() => nodes.every((node) => node.incidents("republished") >= 1), { what: "publication" });
  const late = await startNode(server, "c");
  await converged([...nodes, late]);
  nodes[1].replica.write("and later");
  await converged([...nodes, late]);
  expect(late.replica.registry).toEqual(new Set(["kept"]));
  expect(isAnyDead()).toBe(false);
});

testWithRedis(
  "a server that is killed and comes back empty costs nothing; what was written meanwhile arrives",
  async () => {
    const server = await redisForTest();
    const nodes = await pairOn(server);
    const isAnyDead = watchDeaths(nodes);
    await server.kill();
    for (const { replica } of nodes) {
      for (let round = 0; round < 30; round++) replica.write(`meanwhile ${round}`);
      replica.setLoad(4);
    }
    await waitFor(() => nodes.every(({ backend }) => backend.members()[0]?.isLinked === false), { what: "loss" });
    expect(nodes[0].backend.waitingFor).toEqual([]);
    await server.restart();
    await converged(nodes);
    await waitFor(() => nodes[0].replica.loads.get("b") === 4, { what: "gauges" });
    expect(isAnyDead()).toBe(false);
    expect(stateOf(nodes[0], "b")).toBe("alive");
  },
);

testWithRedis("a server that stops answering until all leases lapsed loses nobody and nothing", async () => {
  const server = await redisForTest();
  const nodes = await pairOn(server);
  const isAnyDead = watchDeaths(nodes);
  server.freeze();
  for (let round = 0; round < 30; round++) nodes[0].replica.write(`frozen ${round}`);
  await waitFor(() => nodes.every(({ backend }) => backend.members()[0]?.isLinked === false), { what: "loss" });
  for (let round = 0; round < 30; round++) nodes[1].replica.write(`without ${round}`);
  server.thaw();
  await converged(nodes);
  await waitFor(() => stateOf(nodes[0], "b") === "alive" && stateOf(nodes[1], "a") === "alive", { what: "members" });
  expect(isAnyDead()).toBe(false);
  expect(nodes[0].logger.lines.some(({ message }) => message.startsWith("Redis unusable"))).toBe(true);
});

testWithRedis("a router starts without Redis, is used after a while, and joins when Redis is there", async () => {
  const server = await redisForTest();
  await server.kill();
  const node = await startNode(server, "a", { graceMs: 600_000 });
  expect(node.backend.waitingFor).toContain("redis");
  const hasty = await startNode(server, "c", { graceMs: 0 });
  expect(hasty.backend.waitingFor).toEqual([]);
  node.replica.write("early");
  await server.restart();
  const other = await startNode(server, "b");
  await converged([node, hasty, other]);
  await ready(node);
});

testWithRedis(
  "a wrong password is a clear error at the start, and the password is nowhere in logs or errors",
  async () => {
    const server = await redisForTest("--requirepass", "open-sesame");
    const host = `127.0.0.1:${server.port}`;
    const wrong = makeNode(server, "a", { url: `redis://:not-the-secret@${host}` });
    const error: unknown = await wrong.backend.start().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "redis_unusable", param: "mesh.redis-url" });
    const none = makeNode(server, "b");
    await expect(none.backend.start()).rejects.toMatchObject({ code: "redis_unusable" });
    const right = await startNode(server, "c", { url: `redis://:open-sesame@${host}` });
    await ready(right);
    const reported = JSON.stringify([String(error), wrong.logger.lines, right.logger.lines]);
    expect(reported).not.toMatch(/not-the-secret|open-sesame/);
    expect(reported).toContain(host);
    const malformed = makeNode(server, "d", { url: "http://user:secret@host" });
    await expect(malformed.backend.start()).rejects.toMatchObject({ code: "redis_unusable" });
  },
);

testWithRedis(
  "what another program writes into journals, leases and channels is counted and does no harm",
  async () => {
    const server = await redisForTest();
    const nodes = await pairOn(server);
    const [journal] = await journalKeys(server, "a");
    await server.command("RPUSH", journal!, Buffer.from([1, 2, 3, 255]));
    await server.command("PUBLISH", await inboxOf(server, "b"), Buffer.from([1, 255, 255]));
    await server.command("PUBLISH", await inboxOf(server, "b"), "{}");
    await server.command("HSET", "espalier:{test}:3:journals", "nonsense", "x");
    await server.command("ZADD", "espalier:{test}:3:living", "9999999999999", "boo");
    await waitFor(() => nodes[1].incidents("entry-invalid") >= 2, { what: "garbage noticed" });
    await waitFor(() => nodes[1].incidents("message-invalid") === 2, { what: "messages refused" });
    await waitFor(() => nodes[1].incidents("lease-invalid") >= 1, { what: "lease refused" });
    nodes[0].replica.write("after the garbage");
    await converged(nodes);
    const late = await startNode(server, "c");
    await converged([...nodes, late]);
    expect(
      late.backend
        .members()
        .map(({ origin }) => origin.router)
        .toSorted(),
    ).toEqual(["a", "b"]);
  },
);

testWithRedis("a stored journal that cannot be read costs nothing but itself", async () => {
  const server = await redisForTest();
  const limits = { storeMs: 50 };
  const before = [await startNode(server, "a", { limits }), await startNode(server, "b", { limits })];
  await ready(...before);
  for (const { replica } of before) replica.write("one");
  await converged(before);
  for (const { backend } of before) {
    await backend.leave();
    await backend.stop();
  }
  for (const key of await journalKeys(server, "a")) {
    await server.command("DEL", key);
    await server.command("RPUSH", key, Buffer.from([9, 9, 9]));
  }
  const after = await startNode(server, "c");
  await ready(after);
  expect(after.incidents("entry-invalid")).toBe(1);
  expect(after.replica.journal(before[0]!.replica.origin)).toEqual([]);
  expect(after.replica.journal(before[1]!.replica.origin)).toEqual(["one"]);
});

testWithRedis("keys that hold something of another type are replaced", async () => {
  const server = await redisForTest();
  const nodes = await pairOn(server);
  const [journal] = await journalKeys(server, "a");
  for (const key of [journal!, "espalier:{test}:3:journals", "espalier:{test}:3:living"]) {
    await server.command("DEL", key);
    await server.command("SET", key, "something else");
  }
  nodes[0].replica.write("after");
  await waitFor(() => nodes.some((node) => node.incidents("key-of-other-type") > 0), { what: "notice" });
  const late = await startNode(server, "c");
  await converged([...nodes, late]);
});

testWithRedis("journals that the replica gave up are removed once their writer is gone", async () => {
  const server = await redisForTest();
  const reader = await startNode(server, "b", { limits: { renewMs: 50 } });
  reader.replica.droppedJournals.add("journal/default/a/1");
  const writer = await startNode(server, "a");
  writer.replica.write("unwanted");
  await waitFor(async () => (await journalKeys(server, "a")).length === 1, { what: "the journal" });
  await writer.backend.leave();
  await writer.backend.stop();
  await waitFor(async () => (await journalKeys(server, "a")).length === 0, { what: "removal", deadlineMs: 12_000 });
  expect(await server.command("HEXISTS", "espalier:{test}:3:journals", "a@1")).toBe(0);
});
