import { systemClock, systemScheduler } from "@espalier/core";
import { addressesOf, askAll, type NodePorts, untilReady, withFilledNodes } from "../mesh-node/filled-nodes.ts";
import type { MeshNodeOptions, MeshNodeStats } from "../mesh-node/mesh-node-messages.ts";
import type { MeshNodeProcess } from "../mesh-node/mesh-node-process.ts";
import type { Figures } from "../support/median-spread.ts";
import { untilNothingMissing } from "../support/until.ts";

/** The size of the mesh that a router joins. */
export interface JoinSizes {
  /** Of each of the two peers. */
  readonly targetsPerPeer: number;
  readonly blocksPerTarget: number;
  /** Blocks that both peers together store and remove per second while a router joins. */
  readonly changesPerS: number;
  /** Routers that join, one after the other: once while the peers are idle, and once while they are busy. */
  readonly joins: number;
}

export interface JoinPorts extends NodePorts<MeshNodeProcess> {
  readonly note: (line: string) => void;
}

/** The join of one router. */
export interface JoinMeasurement {
  /** Pairs of block and target in the joiner when it reported that nothing was missing. */
  readonly blocks: number;
  readonly readyMs: number;
  readonly joinerStallMs: number;
  readonly joinerBusyStallMs: number;
  /** Of the peer whose event loop stalled longer. */
  readonly peerStallMs: number;
  readonly peerBusyStallMs: number;
  /** CPU time of the joiner since its process started, and since then of the peer that used more. */
  readonly joinerCpuMs: number;
  readonly peerCpuMs: number;
  readonly receivedBytes: number;
  /** All journals of the peer that has more: the joiner receives them along with the snapshot. */
  readonly journalBytes: number;
}

export interface JoinRun {
  readonly idle: readonly JoinMeasurement[];
  readonly busy: readonly JoinMeasurement[];
}

const peers = 2;
/** How long the last change may take to arrive everywhere. */
const settleMs = 20_000;

/** Fills two peers in separate processes, and lets one router after the other join them over loopback. */
export async function measureJoins(sizes: JoinSizes, ports: JoinPorts): Promise<JoinRun> {
  const plans = Array.from({ length: peers }, (_, peer) => peerPlan(sizes, peer));
  return withFilledNodes(plans, ports, async (nodes, blocks) => {
    ports.note(`${peers} peers with ${(blocks / 1e6).toFixed(2)} M blocks`);
    const idle: JoinMeasurement[] = [];
    const busy: JoinMeasurement[] = [];
    for (let join = 0; join < sizes.joins; join++) {
      idle.push(await measureJoin(nodes, `idle-${join}`, ports));
      await askAll(nodes, "start");
      busy.push(await measureJoin(nodes, `busy-${join}`, ports));
      await askAll(nodes, "stop");
      ports.note(
        `join ${join + 1} of ${sizes.joins}: ${described(idle.at(-1)!)} idle, ${described(busy.at(-1)!)} at work`,
      );
    }
    return { idle, busy };
  });
}

/** Ports of the machine; `startNode` starts the nodes. */
export function systemJoinPorts(startNode: JoinPorts["startNode"], note: JoinPorts["note"]): JoinPorts {
  return { startNode, note, clock: systemClock, scheduler: systemScheduler };
}

const described = ({ readyMs }: JoinMeasurement): string => `ready after ${Math.round(readyMs)} ms`;

function peerPlan(sizes: JoinSizes, peer: number): Omit<MeshNodeOptions, "seeds"> {
  const { targetsPerPeer, blocksPerTarget, changesPerS } = sizes;
  const targets = Array.from({ length: targetsPerPeer }, (_, target) => `engine-${peer}-${target}/0`);
  const ratePerS = changesPerS / peers;
  return { routerId: `peer-${peer}`, targets, blocksPerTarget, ratePerS, probesPerS: 0, gaugesPerS: 0, seed: 1 };
}

/** @throws Error when the joiner does not end with the peers' blocks */
async function measureJoin(
  nodes: readonly MeshNodeProcess[],
  name: string,
  ports: JoinPorts,
): Promise<JoinMeasurement> {
  await askAll(nodes, "reset");
  const quiet = { targets: [], blocksPerTarget: 128, ratePerS: 0, probesPerS: 0, gaugesPerS: 0, seed: 1 };
  const joiner = await ports.startNode({ routerId: name, seeds: addressesOf(nodes), ...quiet });
  try {
    await untilReady([joiner], ports, "the joiner to be ready", ({ readyMs }) => readyMs !== null);
    const { readyMs, readyBlocks } = await joiner.ask("ready");
    const own = await joiner.ask("stats");
    const theirs = await askAll(nodes, "stats");
    await askAll(nodes, "stop");
    await untilEqual([...nodes, joiner], ports);
    const worst = (of: (stats: MeshNodeStats) => number): number => Math.max(...theirs.map(of));
    return {
      blocks: readyBlocks ?? 0,
      readyMs: readyMs ?? 0,
      joinerStallMs: own.stallMs,
      joinerBusyStallMs: own.busyStallMs,
      peerStallMs: worst(({ stallMs }) => stallMs),
      peerBusyStallMs: worst(({ busyStallMs }) => busyStallMs),
      joinerCpuMs: own.cpuMs,
      peerCpuMs: worst(({ cpuMs }) => cpuMs),
      receivedBytes: own.receivedBytes,
      journalBytes: worst(({ journalBytes }) => journalBytes),
    };
  } finally {
    await joiner.ask("leave").catch(() => {});
    await joiner.stop();
  }
}

/** @throws Error when the nodes' contents do not become equal */
function untilEqual(nodes: readonly MeshNodeProcess[], ports: JoinPorts): Promise<void> {
  const missing = async (): Promise<string | undefined> => {
    const digests = (await askAll(nodes, "digest")).map(({ targets }) => targets.map((each) => JSON.stringify(each)));
    const [first = []] = digests;
    const different = digests.map((lines) => first.filter((line) => !lines.includes(line)).length);
    if (digests.every(({ length }) => length === first.length) && different.every((count) => count === 0)) return;
    const counts = nodes.map(
      ({ routerId }, at) => `${routerId}: ${digests[at]!.length} settled, ${different[at]} other`,
    );
    return `the nodes do not hold the same: ${counts.join("; ")}`;
  };
  return untilNothingMissing(missing, settleMs, ports);
}

/** The figures of one join. */
export function joinFigures(join: JoinMeasurement): Figures {
  return {
    blocks: join.blocks,
    ready_ms: join.readyMs,
    stall_joiner_ms: join.joinerStallMs,
    stall_peer_ms: join.peerStallMs,
    busy_stall_joiner_ms: join.joinerBusyStallMs,
    busy_stall_peer_ms: join.peerBusyStallMs,
    cpu_joiner_ms: join.joinerCpuMs,
    cpu_peer_ms: join.peerCpuMs,
    received_bytes_per_block: join.receivedBytes / join.blocks,
    journal_bytes_per_block: join.journalBytes / join.blocks,
  };
}
