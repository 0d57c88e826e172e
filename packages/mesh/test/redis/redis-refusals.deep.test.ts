import { freePort, waitFor } from "@espalier/testing";
import { expect } from "vitest";
import { type CommandedRedis, testWithRedis } from "./redis-server.ts";
import { converged, makeNode, type Node, ready, redisForTest, startNode, stateOf } from "./rig.ts";
import { slowPortFor } from "./slow-port.ts";

async function pairOn(server: CommandedRedis, options: Parameters<typeof startNode>[2] = {}): Promise<[Node, Node]> {
  const nodes: [Node, Node] = [await startNode(server, "a", options), await startNode(server, "b", options)];
  await waitFor(() => nodes.every(({ backend }) => backend.members()[0]?.isLinked), { what: "links" });
  await ready(...nodes);
  return nodes;
}

const linesOf = ({ logger }: Node, message: string): number =>
  logger.lines.filter((line) => line.message === message).length;

/** Routers whose leases last. */
const living = async (server: CommandedRedis): Promise<number> => {
  const [seconds, micros] = ((await server.command("TIME")) as Buffer[]).map(Number) as [number, number];
  const nowMs = String(seconds * 1_000 + Math.floor(micros / 1_000));
  return Number(await server.command("ZCOUNT", "espalier:{test}:3:living", nowMs, "+inf"));
};

testWithRedis(
  "a Redis without memory stores no journal, is told once, and lets routers join all the same",
  async () => {
    const server = await redisForTest("--maxmemory-policy", "noeviction");
    const limits = { storeMs: 50 };
    const nodes = await pairOn(server, { limits });
    await server.command("CONFIG", "SET", "maxmemory", "1");
    for (const { replica } of nodes) replica.write("without memory");
    await converged(nodes);
    await waitFor(() => nodes.every((node) => node.incidents("store-failed") >= 3), { what: "refused copies" });
    const late = await startNode(server, "c");
    await ready(late);
    await converged([...nodes, late]);
    expect(await living(server)).toBe(3);
    for (const node of nodes) expect(linesOf(node, "journal not stored in Redis")).toBe(1);
    await server.command("CONFIG", "SET", "maxmemory", "0");
    const keys = async (): Promise<number> =>
      ((await server.command("KEYS", "espalier:{test}:3:journal:*")) as Buffer[]).length;
    await waitFor(async () => (await keys()) === 3, { what: "copies" });
  },
);

testWithRedis(
  "a Redis that takes no writes for now: links go on, and a router starts and joins when it may",
  async () => {
    const server = await redisForTest();
    const nodes = await pairOn(server);
    await server.command("CONFIG", "SET", "min-replicas-to-write", "1");
    const late = await startNode(server, "c");
    expect(late.backend.waitingFor).toEqual(["redis"]);
    for (const { replica } of nodes) replica.write("without writes");
    await waitFor(() => nodes.every((node) => node.incidents("look-failed") >= 5), { what: "refused looks" });
    await converged(nodes);
    for (const node of nodes) {
      // Commands outside of the script that renews the lease are refused in other words.
      expect(linesOf(node, "Redis read failed")).toBeLessThanOrEqual(2);
      expect(node.backend.members()[0]).toMatchObject({ state: "alive", isLinked: true });
    }
    await server.command("CONFIG", "SET", "min-replicas-to-write", "0");
    await converged([...nodes, late]);
    await ready(late);
  },
);

testWithRedis("a Redis that becomes a replica is left for what its address leads to next", async () => {
  const server = await redisForTest();
  const nodes = await pairOn(server);
  await server.command("REPLICAOF", "127.0.0.1", "1");
  const isConnected = (node: Node): boolean => node.meter.value("espalier_redis_connected") === 1;
  await waitFor(() => !nodes.some(isConnected), { what: "its end" });
  const late = await startNode(server, "c");
  await server.command("REPLICAOF", "NO", "ONE");
  await waitFor(() => [...nodes, late].every(isConnected), { what: "the next" });
  for (const { replica } of nodes) replica.write("afterwards");
  await converged([...nodes, late]);
  for (const node of nodes) expect(linesOf(node, "Redis unusable; routing continues")).toBe(1);
  expect(nodes.map((node) => stateOf(node, "c"))).toEqual(["alive", "alive"]);
});

testWithRedis("missing rights stop the start, and the message names the command", async () => {
  const server = await redisForTest();
  await server.command("ACL", "SETUSER", "router", "on", ">open-sesame", "~*", "&*", "+@all", "-eval");
  const node = makeNode(server, "a", { url: `redis://router:open-sesame@127.0.0.1:${server.port}` });
  const error: unknown = await node.backend.start().catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: "redis_unusable", param: "mesh.redis-url" });
  expect(String(error)).toContain("'eval'");
  expect(String(error)).not.toContain("open-sesame");
});

testWithRedis("of a Redis Cluster the node with the keys carries a mesh; another one is named as wrong", async () => {
  const ports = [await freePort(), await freePort()] as const;
  const servers = [
    await redisForTest("--cluster-enabled", "yes", "--cluster-port", String(ports[0])),
    await redisForTest("--cluster-enabled", "yes", "--cluster-port", String(ports[1])),
  ] as const;
  await servers[0].command("CLUSTER", "ADDSLOTSRANGE", "0", "8191");
  await servers[1].command("CLUSTER", "ADDSLOTSRANGE", "8192", "16383");
  await servers[0].command("CLUSTER", "MEET", "127.0.0.1", String(servers[1].port), String(ports[1]));
  const isWhole = async (server: CommandedRedis): Promise<boolean> =>
    String(await server.command("CLUSTER", "INFO")).includes("cluster_slots_ok:16384");
  await waitFor(async () => (await isWhole(servers[0])) && (await isWhole(servers[1])), {
    what: "cluster",
    deadlineMs: 20_000,
  });
  const slot = Number(await servers[0].command("CLUSTER", "KEYSLOT", "espalier:{test}:3:living"));
  const [right, wrong] = slot < 8_192 ? servers : [servers[1], servers[0]];
  await converged(await pairOn(right));
  const lost = await startNode(wrong, "c");
  const line = lost.logger.lines.find(({ message }) => message === "Redis unusable; routing continues");
  expect(line?.fields).toMatchObject({ why: expect.stringMatching(/does not own the mesh's keys.*MOVED/) });
});

testWithRedis("a lease lasts while a copy of the journal takes longer", async () => {
  const server = await redisForTest();
  const url = `redis://127.0.0.1:${await slowPortFor(server.port, 40)}`;
  const node = await startNode(server, "a", { url, limits: { pieceBytes: 64, leaseMs: 1_000, renewMs: 250 } });
  await ready(node);
  for (let item = 0; item < 40; item++) node.replica.write(`${item}`);
  const stored = async (): Promise<boolean> => {
    expect(await living(server)).toBe(1);
    const keys = (await server.command("KEYS", "espalier:{test}:3:journal:*")) as Buffer[];
    const lengths = await Promise.all(keys.map(async (key) => Number(await server.command("LLEN", key))));
    return lengths.some((length) => length > 40);
  };
  await waitFor(stored, { what: "a copy", deadlineMs: 15_000 });
});

testWithRedis("a Redis that answers late at the start is no pause of the router", async () => {
  const server = await redisForTest();
  const node = await startNode(server, "a", { url: `redis://127.0.0.1:${await slowPortFor(server.port, 150)}` });
  await ready(node);
  expect(node.logger.lines.filter(({ message }) => message.includes("process paused"))).toEqual([]);
});

testWithRedis("a Redis that hangs for a second, again and again, costs nobody's life", async () => {
  const server = await redisForTest("--enable-debug-command", "yes");
  const nodes = await pairOn(server);
  let isAnyDown = false;
  for (const { backend } of nodes) {
    backend.onMembers(() => {
      isAnyDown ||= backend.members().some(({ state }) => state === "down");
    });
  }
  for (let round = 0; round < 4; round++) {
    for (const { replica } of nodes) replica.write(`round ${round}`);
    await server.command("DEBUG", "SLEEP", "1");
  }
  await converged(nodes);
  await waitFor(() => nodes.every(({ backend }) => backend.members()[0]?.state === "alive"), { what: "members" });
  expect(isAnyDown).toBe(false);
});
