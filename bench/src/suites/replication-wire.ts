import { createSeededRandom, silentLogger } from "@espalier/core";
import { createMemoryNetwork, createVirtualTime } from "@espalier/testing";
import { type MeshNode, startMeshNode } from "../mesh-node/mesh-node.ts";
import type { Figures } from "../support/median-spread.ts";

export interface WireShape {
  /** Of each of the two nodes. */
  readonly feeds: number;
  readonly blocksPerFeed: number;
  /** Blocks that each node stores and removes per second. */
  readonly ratePerS: number;
  readonly seconds: number;
  readonly seed: number;
}

/** Time for links to come up, and for frames in transit to arrive. */
const settleMs = 3_000;

/**
 * Counts the bytes on a link between two nodes of a mesh, over all kinds of frames: journal updates with their
 * checkpoints, heartbeats, gauges, membership. The mesh uses an in-memory network in virtual time, so the result is
 * always the same.
 *
 * @throws Error when the two nodes differ at the end
 */
export async function measureWire(shape: WireShape): Promise<Figures> {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const network = createMemoryNetwork({ clock, scheduler, random: createSeededRandom(shape.seed) });
  const addresses = ["127.0.0.1:1", "127.0.0.1:2"];
  const nodes: MeshNode[] = [];
  for (const [at, address] of addresses.entries()) {
    const targets = Array.from({ length: shape.feeds }, (_, feed) => `engine-${at}-${feed}/0`);
    const { blocksPerFeed: blocksPerTarget, ratePerS, seed } = shape;
    const seeds = addresses.slice(0, at);
    const options = { routerId: `router-${at}`, seeds, targets, blocksPerTarget, ratePerS, seed };
    const ports = { transport: network.transport(address), clock, scheduler, logger: silentLogger };
    nodes.push(await startMeshNode({ ...options, probesPerS: 0, gaugesPerS: 0 }, ports));
  }
  const each = (command: "start" | "stop" | "reset"): Promise<unknown> =>
    Promise.all(nodes.map(({ commands }) => commands[command]()));
  await time.advanceAsync(settleMs);
  const filled = nodes.map(({ commands }) => commands.fill());
  await time.advanceAsync(settleMs);
  await Promise.all(filled);
  await each("reset");
  await time.advanceAsync(shape.seconds * 1_000);
  const idle = await Promise.all(nodes.map(({ commands }) => commands.stats()));
  await each("reset");
  await each("start");
  await time.advanceAsync(shape.seconds * 1_000);
  await each("stop");
  await time.advanceAsync(settleMs);
  const stats = await Promise.all(nodes.map(({ commands }) => commands.stats()));
  const [one, other] = await Promise.all(nodes.map(({ commands }) => commands.digest()));
  const stopped = Promise.all(nodes.map((node) => node.stop()));
  await time.advanceAsync(settleMs);
  await stopped;
  if (JSON.stringify(one) !== JSON.stringify(other)) throw new Error("the nodes do not hold the same");
  if (one?.targets.length !== 2 * shape.feeds) throw new Error(`${one?.targets.length} targets are settled`);
  const sum = (of: (stat: (typeof stats)[number]) => number): number =>
    stats.reduce((total, stat) => total + of(stat), 0);
  return {
    wire_bytes_per_op: sum(({ sentBytes }) => sentBytes) / sum(({ ops }) => ops),
    idle_wire_bytes_per_s: idle.reduce((total, { sentBytes }) => total + sentBytes, 0) / shape.seconds,
  };
}
