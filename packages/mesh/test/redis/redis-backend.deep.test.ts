import { waitFor } from "@espalier/testing";
import { expect } from "vitest";
import { testWithRedis } from "./redis-server.ts";
import { converged, makeNode, ready, redisForTest, startNode, stateOf } from "./rig.ts";

testWithRedis("four routers see each other's journals, registry and gauges", async () => {
  const server = await redisForTest();
  const nodes = await Promise.all(["a", "b", "c", "d"].map((id) => startNode(server, id)));
  await ready(...nodes);
  for (let round = 0; round < 50; round++) {
    for (const { replica } of nodes) replica.write(`${replica.origin.router} ${round}`);
  }
  for (const { replica } of nodes) replica.register(`registered by ${replica.origin.router}`);
  for (const [at, { replica }] of nodes.entries()) replica.setLoad(at + 1);
  await converged(nodes);
  await waitFor(() => nodes.every(({ replica }) => [...replica.loads.values()].length === 3), { what: "gauges" });
  expect(nodes[3]!.replica.loads).toEqual(
    new Map([
      ["a", 1],
      ["b", 2],
      ["c", 3],
    ]),
  );
  expect(nodes[0]!.backend.members().map(({ state, isLinked }) => [state, isLinked])).toEqual(
    Array(3).fill(["alive", true]),
  );
  const [first] = nodes[0]!.backend.describe().members;
  expect(first).toMatchObject({ state: "alive", isLinked: true, address: null, roundTripMs: expect.any(Number) });
  expect(first!.receivedBytes).toBeGreaterThan(500);
});

testWithRedis("who comes late gets all that was written before, and what is written then", async () => {
  const server = await redisForTest();
  const writer = await startNode(server, "a", { limits: { pieceBytes: 4_096 } });
  await ready(writer);
  for (let round = 0; round < 1_500; round++) writer.replica.write(`item ${round}`);
  const late = await startNode(server, "b");
  await converged([writer, late]);
  writer.replica.write("live");
  await converged([writer, late]);
});

testWithRedis("routers that start when nobody is there read what those before them stored", async () => {
  const server = await redisForTest();
  const limits = { storeMs: 100, pieceBytes: 4_096 };
  const before = [await startNode(server, "a", { limits }), await startNode(server, "b", { limits })];
  await ready(...before);
  for (const { replica } of before) for (let round = 0; round < 500; round++) replica.write(`item ${round}`);
  before[0]!.replica.register("registered");
  await converged(before);
  const keyOf = async (): Promise<string> => String(await server.command("HGETALL", "espalier:{test}:3:journals"));
  const first = await keyOf();
  for (const { replica } of before) replica.write("the last");
  await waitFor(async () => (await keyOf()) !== first, { what: "the next copies" });
  await waitFor(
    async () => {
      const versions = (await keyOf()).split(",").filter((_, at) => at % 2 === 1);
      return versions.every((version) => !first.includes(version));
    },
    { what: "copies of both" },
  );
  for (const { backend } of before) await backend.stop();
  const after = [await startNode(server, "c"), await startNode(server, "d")];
  await ready(...after);
  for (const { replica } of after) {
    for (const { replica: writer } of before)
      expect(replica.journal(writer.origin)).toEqual(writer.journal(writer.origin));
    expect([...replica.registry]).toEqual(["registered"]);
  }
});

testWithRedis("a router that leaves stores what it wrote last", async () => {
  const server = await redisForTest();
  const before = await startNode(server, "a", { limits: { storeMs: 600_000 } });
  await ready(before);
  before.replica.write("the last");
  await before.backend.leave();
  await before.backend.stop();
  const after = await startNode(server, "b");
  await ready(after);
  expect(after.replica.journal(before.replica.origin)).toEqual(["the last"]);
});

testWithRedis(
  "routers of an earlier version in the same cluster are named in the log, once, and served beside",
  async () => {
    const server = await redisForTest();
    await server.command("SADD", "espalier:{test}:2:members", "old");
    await server.command("SET", "espalier:{test}:2:member:old", '1 {"beat":1}');
    const node = await startNode(server, "a", { limits: { renewMs: 20 } });
    await ready(node);
    await waitFor(() => node.incidents("older-version") >= 2, { what: "two counts" });
    const reported = node.logger.lines.filter(({ message }) => message.startsWith("routers of an earlier version"));
    expect(reported).toMatchObject([{ level: "error" }]);
  },
);

testWithRedis("a newcomer fetches state from one that has it, and asks nobody when it is alone", async () => {
  const server = await redisForTest();
  const state = Array.from({ length: 200 }, (_, at) => `target ${at}`);
  const first = await startNode(server, "a", {
    prepare: (replica) => {
      for (const target of state) replica.state.add(target);
    },
  });
  await ready(first);
  expect(first.replica.imported).toEqual([]);
  const second = makeNode(server, "b", {});
  expect(second.backend.waitingFor).toContain("redis");
  await second.backend.start();
  await ready(second);
  expect(second.replica.imported).toEqual([state]);
  second.replica.request({ targets: ["target 7", "target 9"], from: first.replica.origin });
  await waitFor(() => second.replica.imported.length === 2, { what: "two targets" });
  expect(second.replica.imported[1]).toEqual(["target 7", "target 9"]);
  expect(second.replica.unavailable).toEqual([]);
});

testWithRedis("what nobody can give is told to be unavailable", async () => {
  const server = await redisForTest();
  const alone = await startNode(server, "a");
  await ready(alone);
  const everything = { targets: undefined, from: undefined };
  expect(alone.replica.unavailable).toEqual([everything]);
  alone.replica.request({ targets: ["x"], from: undefined });
  await waitFor(() => alone.replica.unavailable.length === 2, { what: "an answer" });
  expect(alone.replica.unavailable).toEqual([everything, { targets: ["x"], from: undefined }]);
});

testWithRedis("who leaves is gone at once, who dies is suspected and down within 4 s", async () => {
  const server = await redisForTest();
  const [stays, leaves, dies] = [
    await startNode(server, "a"),
    await startNode(server, "b"),
    await startNode(server, "c"),
  ];
  await waitFor(() => stays.backend.members().length === 2, { what: "members" });
  dies.replica.setLoad(5);
  await waitFor(() => stays.replica.loads.get("c") === 5, { what: "load" });
  await leaves.backend.leave();
  // Only its goodbye says so: who is silent is suspected, and then down.
  await waitFor(() => stateOf(stays, "b") === "left", { what: "goodbye" });
  expect(stays.replica.gone).toEqual(["b@1"]);
  await leaves.backend.stop();
  await dies.backend.stop();
  await waitFor(() => stateOf(stays, "c") === "suspect", { what: "suspicion", deadlineMs: 2_500 });
  expect(stays.replica.loads.get("c")).toBe(5);
  await waitFor(() => stateOf(stays, "c") === "down", { what: "death", deadlineMs: 3_000 });
  expect(stays.replica.loads.get("c")).toBe(0);
  await waitFor(() => stays.backend.members().length === 0, { what: "oblivion" });
});

testWithRedis("draining and unreachable targets are told to all at once, and listeners hear of it", async () => {
  const server = await redisForTest();
  const [one, other] = [await startNode(server, "a"), await startNode(server, "b")];
  await waitFor(() => other.backend.members().length === 1, { what: "member" });
  let changes = 0;
  const cancel = other.backend.onMembers(() => changes++);
  one.backend.setDraining(true);
  one.backend.setUnreachable(["e1#0"]);
  await waitFor(() => other.backend.members()[0]?.unreachable.includes("e1#0"), { what: "news" });
  expect(other.backend.members()[0]).toMatchObject({ isDraining: true, unreachable: ["e1#0"] });
  expect(changes).toBeGreaterThan(0);
  cancel();
});

testWithRedis("statements of one are compared by the others", async () => {
  const server = await redisForTest();
  const exchangeLimits = { statementPeriodMs: 50 };
  const one = await startNode(server, "a", { exchangeLimits });
  const other = await startNode(server, "b", { exchangeLimits });
  await ready(one, other);
  for (let at = 0; at < 5; at++) {
    const digest = [at, at + 1] as const;
    one.replica.ownStatements.push({
      target: `t${at}`,
      epoch: "1.2.3",
      sequence: at,
      isComplete: true,
      blocks: 9,
      digest,
    });
  }
  await waitFor(() => other.replica.compared.length >= 5, { what: "statements" });
  expect(other.replica.compared.slice(0, 5).map(({ statement }) => statement)).toEqual(one.replica.ownStatements);
  expect(other.replica.compared[0]!.from).toEqual(one.replica.origin);
});

testWithRedis(
  "a restarted router waits for its earlier lease to lapse, rises above its epoch, and reads its old journal",
  async () => {
    const server = await redisForTest();
    const before = await startNode(server, "a", { epoch: 7 });
    before.replica.write("from before");
    await before.backend.leave();
    await before.backend.stop();
    const killed = await startNode(server, "a", { epoch: 8 });
    await killed.backend.stop();
    const again = await startNode(server, "a", { epoch: 3 });
    expect(again.replica.origin.epoch).toBe(9);
    await waitFor(() => again.replica.journal(before.replica.origin).length === 1, { what: "the old journal" });
  },
);

testWithRedis("a second living router with the same id is refused, and the first one is not disturbed", async () => {
  const server = await redisForTest();
  const first = await startNode(server, "a", { epoch: 5 });
  const second = makeNode(server, "a", { epoch: 6 });
  await expect(second.backend.start()).rejects.toMatchObject({ code: "mesh_rejected" });
  const witness = await startNode(server, "b");
  first.replica.write("still here");
  await converged([first, witness]);
  expect(witness.backend.members().map(({ origin }) => origin.epoch)).toEqual([5]);
});

testWithRedis("clusters on one server do not see each other", async () => {
  const server = await redisForTest();
  const node = await startNode(server, "a");
  await ready(node);
  node.replica.write("something");
  const keysThere = async (): Promise<Buffer[]> => (await server.command("KEYS", "*")) as Buffer[];
  const keys = await waitFor(async () => ((await keysThere()).length >= 3 ? keysThere() : undefined), {
    what: "keys",
  });
  for (const key of keys) expect(key.toString()).toMatch(/^espalier:\{test\}:/);
});
