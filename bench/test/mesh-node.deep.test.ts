import { createSeededRandom, silentLogger } from "@espalier/core";
import { createMemoryNetwork, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { type MeshNode, startMeshNode } from "../src/mesh-node/mesh-node.ts";
import {
  type MeshNodeAnswers,
  type MeshNodeCommand,
  type MeshNodeOptions,
  meshNodeCommands,
} from "../src/mesh-node/mesh-node-messages.ts";
import { gaugeTarget } from "../src/mesh-node/node-gauges.ts";
import { probeTarget } from "../src/mesh-node/node-probes.ts";

/** Nodes on a network in memory, in virtual time. */
function createNodeRig(delayMs = 0) {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const network = createMemoryNetwork({ clock, scheduler, random: createSeededRandom(1) });
  network.setSpeed({ delayMs });
  const nodes: MeshNode[] = [];
  return {
    time,
    nodes,
    async add(options: Partial<MeshNodeOptions> = {}): Promise<MeshNode> {
      const at = nodes.length;
      const node = await startMeshNode(
        {
          routerId: `router-${at}`,
          seeds: nodes.map(({ address }) => address),
          targets: [`engine-${at}-0/0`, `engine-${at}-1/0`],
          blocksPerTarget: 256,
          ratePerS: 2_000,
          probesPerS: 20,
          gaugesPerS: 20,
          seed: 1,
          ...options,
        },
        { transport: network.transport(`127.0.0.1:${at + 1}`), clock, scheduler, logger: silentLogger },
      );
      nodes.push(node);
      return node;
    },
    ask<Command extends MeshNodeCommand>(command: Command): Promise<MeshNodeAnswers[Command][]> {
      return Promise.all(nodes.map(({ commands }) => commands[command]()));
    },
    async run(durationMs: number): Promise<void> {
      await time.advanceAsync(durationMs);
    },
    async end(): Promise<void> {
      const stopped = Promise.all(nodes.splice(0).map((node) => node.stop()));
      await time.advanceAsync(3_000);
      await stopped;
    },
  };
}

type Rig = ReturnType<typeof createNodeRig>;

async function filled(rig: Rig): Promise<number> {
  const filling = rig.ask("fill");
  await rig.run(1_000);
  return (await filling).reduce((sum, { blocks }) => sum + blocks, 0);
}

test("nodes find each other, fill, and hold the same", async () => {
  const rig = createNodeRig();
  for (let node = 0; node < 3; node++) await rig.add();
  await rig.run(3_000);
  for (const state of await rig.ask("ready")) {
    expect(state).toMatchObject({ waitingFor: [], members: 2, blocks: 0, readyBlocks: 0 });
    expect(state.readyMs).toBeGreaterThan(0);
  }
  const blocks = await filled(rig);
  expect(blocks).toBeGreaterThanOrEqual(6 * (256 - 68));
  expect((await rig.ask("ready")).map((state) => state.blocks)).toEqual([blocks, blocks, blocks]);
  const [first, ...others] = await rig.ask("digest");
  expect(first!.targets.map(({ target }) => target)).toEqual([
    "engine-0-0/0",
    "engine-0-1/0",
    "engine-1-0/0",
    "engine-1-1/0",
    "engine-2-0/0",
    "engine-2-1/0",
  ]);
  expect(first!.targets.reduce((sum, target) => sum + target.blocks, 0)).toBe(blocks);
  for (const other of others) expect(other).toEqual(first);
  await rig.end();
});

test("changes come at the rate, and the bytes of links are counted from the reset on", async () => {
  const rig = createNodeRig();
  for (let node = 0; node < 2; node++) await rig.add();
  await rig.run(3_000);
  await filled(rig);
  await rig.ask("reset");
  await rig.ask("start");
  await rig.run(4_000);
  await rig.ask("stop");
  await rig.run(500);
  const stats = await rig.ask("stats");
  for (const { elapsedMs, ops, messages, skippedOps } of stats) {
    expect(elapsedMs).toBe(4_500);
    expect(ops).toBeGreaterThan(7_800);
    expect(ops).toBeLessThan(8_200);
    expect(messages).toBeGreaterThan(ops / 136);
    expect(messages).toBeLessThan(ops);
    expect(skippedOps).toBe(0);
  }
  const [one, other] = stats;
  expect(one!.sentBytes).toBe(other!.receivedBytes);
  expect(one!.sentBytes / one!.ops).toBeGreaterThan(4);
  expect(one!.blocks).toBe(other!.blocks);
  for (const size of ["indexBytes", "journalBytes", "residentBytes"] as const) expect(one![size]).toBeGreaterThan(0);
  await rig.ask("reset");
  expect(await rig.ask("stats")).toMatchObject([
    { ops: 0, messages: 0, elapsedMs: 0, sentBytes: 0 },
    { ops: 0, messages: 0, elapsedMs: 0, receivedBytes: 0 },
  ]);
  await rig.end();
});

test("probes and gauges tell how long a change takes to be seen", async () => {
  const delayMs = 7;
  const rig = createNodeRig(delayMs);
  for (let node = 0; node < 3; node++) await rig.add({ ratePerS: 0 });
  await rig.run(3_000);
  await rig.ask("start");
  await rig.run(10_000);
  await rig.ask("stop");
  await rig.run(200);
  const stats = await rig.ask("stats");
  for (const [at, { probesSent, gaugesSent }] of stats.entries()) {
    expect(probesSent.length).toBeGreaterThan(180);
    expect(probesSent.map(([number]) => number)).toEqual(probesSent.map((_, number) => number));
    for (const [other, { probesSeen, gaugesSeen }] of stats.entries()) {
      if (other === at) continue;
      const probes = new Map(probesSeen[`router-${at}`]);
      const gauges = new Map(gaugesSeen[`router-${at}`]);
      expect(probes.size).toBe(probesSent.length);
      for (const [number, sentMs] of probesSent) {
        const tookMs = probes.get(number)! - sentMs;
        expect(tookMs).toBeGreaterThanOrEqual(delayMs - 0.01);
        expect(tookMs).toBeLessThanOrEqual(delayMs + 15.01);
      }
      expect(gauges.size).toBe(gaugesSent.length);
      for (const [number, sentMs] of gaugesSent) {
        const tookMs = gauges.get(number)! - sentMs;
        expect(tookMs).toBeGreaterThanOrEqual(delayMs - 0.01);
        expect(tookMs).toBeLessThanOrEqual(delayMs + 10.01);
      }
    }
  }
  for (const { probesSeen } of stats) expect(Object.keys(probesSeen)).toHaveLength(2);
  await rig.end();
});

test("a node that comes late has everything once it is ready, and sees only what comes then", async () => {
  const rig = createNodeRig();
  for (let node = 0; node < 2; node++) await rig.add();
  await rig.run(3_000);
  const blocks = await filled(rig);
  await rig.ask("start");
  await rig.run(8_000);
  await rig.ask("stop");
  await rig.run(200);
  const late = await rig.add({ targets: [], ratePerS: 0, probesPerS: 0, gaugesPerS: 0 });
  await rig.run(3_000);
  const state = await late.commands.ready();
  expect(state.waitingFor).toEqual([]);
  expect(state.members).toBe(2);
  expect(state.readyBlocks).toBe(state.blocks);
  expect(state.blocks).toBeGreaterThanOrEqual(blocks);
  const [first, , third] = await rig.ask("digest");
  expect(third).toEqual(first);
  const { probesSeen } = await late.commands.stats();
  for (const seen of Object.values(probesSeen)) expect(seen.length).toBeLessThanOrEqual(129);
  await rig.end();
});

test("a node that says goodbye is not counted any more", async () => {
  const rig = createNodeRig();
  const [, gone] = [await rig.add(), await rig.add()];
  await rig.run(3_000);
  const left = gone.commands.leave();
  await rig.run(2_000);
  expect(await left).toEqual({});
  rig.nodes.pop();
  expect((await rig.ask("ready"))[0]!.members).toBe(0);
  await rig.end();
});

test("starting twice does not double the rate", async () => {
  const rig = createNodeRig();
  await rig.add();
  await rig.run(3_500);
  await rig.ask("start");
  await rig.ask("start");
  await rig.run(2_000);
  await rig.ask("stop");
  const [stats] = await rig.ask("stats");
  expect(stats!.ops).toBeLessThan(4_200);
  expect(stats!.probesSent.length).toBeLessThan(50);
  await rig.run(1_000);
  expect((await rig.ask("stats"))[0]!.ops).toBe(stats!.ops);
  await rig.end();
});

test("every command that is named is there, and targets of measurement have names of their own", async () => {
  const rig = createNodeRig();
  const node = await rig.add();
  expect(Object.keys(node.commands).sort()).toEqual([...meshNodeCommands].sort());
  expect(probeTarget("a")).toBe("probe/a");
  expect(gaugeTarget("a")).toBe("gauge/a");
  await rig.end();
});
