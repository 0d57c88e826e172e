import { waitFor } from "@espalier/testing";
import { expect } from "vitest";
import { type CommandedRedis, testWithRedis } from "./redis-server.ts";
import { converged, makeNode, type Node, ready, redisForTest, startNode, stateOf } from "./rig.ts";

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

const streamKeys = async (server: CommandedRedis, router: string): Promise<string[]> =>
  ((await server.command("KEYS", `espalier:{test}:journal:${router}:*`)) as Buffer[]).map((key) => key.toString());

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
  expect(nodes[0].logger.lines.some(({ message }) => message.startsWith("Redis is not usable"))).toBe(true);
});

testWithRedis("a router starts without Redis, is used after a while, and joins when Redis is there", async () => {
  const server = await redisForTest();
  await server.kill();
  const node = await startNode(server, "a", { limits: { redisTimeoutMs: 600_000 } });
  expect(node.backend.waitingFor).toContain("redis");
  const impatient = await startNode(server, "c", { limits: { redisTimeoutMs: 0 } });
  expect(impatient.backend.waitingFor).toEqual([]);
  node.replica.write("early");
  await server.restart();
  const other = await startNode(server, "b");
  await converged([node, impatient, other]);
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
    const told = JSON.stringify([String(error), wrong.logger.lines, right.logger.lines]);
    expect(told).not.toMatch(/not-the-secret|open-sesame/);
    expect(told).toContain(host);
    const malformed = makeNode(server, "d", { url: "http://user:secret@host" });
    await expect(malformed.backend.start()).rejects.toMatchObject({ code: "redis_unusable" });
  },
);

testWithRedis(
  "what another program writes into streams, leases, channels and blobs is counted and does no harm",
  async () => {
    const server = await redisForTest();
    const nodes = await pairOn(server);
    const [stream] = await streamKeys(server, "a");
    await server.command("XADD", stream!, "*", "hello", "world");
    await server.command("XADD", stream!, "*", "u", Buffer.from([1, 2, 3, 255]));
    await server.command("PUBLISH", "espalier:{test}:load", Buffer.from([1, 255, 255]));
    await server.command("PUBLISH", "espalier:{test}:control", "{}");
    await server.command("HSET", "espalier:{test}:origins", "nonsense", "x");
    await server.command("SADD", "espalier:{test}:members", "ghost");
    await server.command("SET", "espalier:{test}:member:ghost", "boo", "PX", "2000");
    await waitFor(() => nodes[1].incidents("entry-invalid") >= 2, { what: "garbage noticed" });
    await waitFor(() => nodes[1].incidents("load-invalid") === 1, { what: "gauges refused" });
    await waitFor(() => nodes[1].incidents("message-invalid") === 1, { what: "message refused" });
    await waitFor(() => nodes[1].incidents("lease-invalid") >= 1, { what: "lease refused" });
    nodes[0].replica.write("after the garbage");
    await converged(nodes);
    const late = await startNode(server, "c");
    await converged([...nodes, late]);
    expect(late.backend.members().map(({ origin }) => origin.router)).toEqual(["a", "b"]);
  },
);

testWithRedis("keys that hold something of another type are replaced", async () => {
  const server = await redisForTest();
  const nodes = await pairOn(server);
  const [stream] = await streamKeys(server, "a");
  for (const key of [stream!, "espalier:{test}:origins", "espalier:{test}:members"]) {
    await server.command("DEL", key);
    await server.command("SET", key, "something else");
  }
  nodes[0].replica.write("after");
  await waitFor(() => nodes.some((node) => node.incidents("key-of-other-type") > 0), { what: "notice" });
  const late = await startNode(server, "c");
  await converged([...nodes, late]);
});

testWithRedis("an update that the replica refuses is counted, and those after it are applied", async () => {
  const server = await redisForTest();
  const [writer, reader] = await pairOn(server);
  const bytes = new TextEncoder().encode("no JSON");
  const { documents } = writer.replica;
  writer.replica.write("before");
  await converged([writer, reader]);
  const name = writer.replica.name;
  const clock = documents.state(name)!.clock;
  const [stream] = await streamKeys(server, "a");
  const refused = Buffer.concat([
    Buffer.from([1, 0, name.length]),
    Buffer.from(name),
    Buffer.from([clock, clock + 1]),
    bytes,
  ]);
  await server.command("XADD", stream!, "1000-0", "u", refused);
  await waitFor(() => reader.incidents("update-refused") >= 1, { what: "refusal" });
  writer.replica.write("after");
  await converged([writer, reader]);
});

testWithRedis("journals that the replica gave up are removed once their writer is gone", async () => {
  const server = await redisForTest();
  const reader = await startNode(server, "b", { limits: { renewMs: 50 } });
  reader.replica.droppedJournals.add("journal/default/a/1");
  const writer = await startNode(server, "a");
  writer.replica.write("unwanted");
  await waitFor(async () => (await streamKeys(server, "a")).length === 1, { what: "the journal" });
  await writer.backend.leave();
  await writer.backend.stop();
  await waitFor(async () => (await streamKeys(server, "a")).length === 0, { what: "removal", deadlineMs: 12_000 });
  expect(await server.command("HEXISTS", "espalier:{test}:origins", "a@1")).toBe(0);
});

testWithRedis("one update more than may wait drops them all, and everything is published anew", async () => {
  const server = await redisForTest();
  const limits = { maxQueuedUpdates: 50 };
  const writer = await startNode(server, "a", { limits });
  const reader = await startNode(server, "b");
  await ready(writer, reader);
  await server.kill();
  for (let round = 0; round < 50; round++) writer.replica.write(`fits ${round}`);
  expect(writer.incidents("queue-full")).toBe(0);
  writer.replica.write("one more");
  expect(writer.incidents("queue-full")).toBe(1);
  expect(writer.backend.describe()).toMatchObject({ kind: "redis" });
  await server.restart();
  await converged([writer, reader]);
});
