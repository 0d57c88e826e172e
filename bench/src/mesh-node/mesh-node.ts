import {
  asRouterId,
  type Clock,
  createSeededRandom,
  type Logger,
  type Scheduler,
  silentMeter,
  systemCpuMs,
} from "@espalier/core";
import { type Backend, createMesh, createRedisBackend, type MeshOptions } from "@espalier/mesh";
import { createPrefixIndex, type PrefixIndex } from "@espalier/prefix-index";
import { createReplica, createTargetSlots, type Replica } from "@espalier/shared-tree";
import { textBits } from "../support/text-bits.ts";
import { createLoopStalls, type LoopStalls } from "./loop-stalls.ts";
import type { MeshNodeAnswers, MeshNodeCommand, MeshNodeOptions, TargetDigest } from "./mesh-node-messages.ts";
import { createNodeFeeds, type NodeFeeds } from "./node-feeds.ts";
import { createNodeGauges, type NodeGauges } from "./node-gauges.ts";
import { createNodeProbes, type NodeProbes } from "./node-probes.ts";
import { createNodeReadiness, type NodeReadiness } from "./node-readiness.ts";
import { createWallTime } from "./wall-time.ts";

/** One router of a measured mesh: replica, real sockets and synthetic engines, without HTTP. */
export interface MeshNode {
  readonly address: string;
  /** One function for each command. */
  readonly commands: { readonly [Command in MeshNodeCommand]: () => Promise<MeshNodeAnswers[Command]> };
  stop(): Promise<void>;
}

const maxTargets = 1_024;
const upkeepMs = 100;
const upkeepSteps = 65_536;
const placementTtlMs = 600_000;

export interface MeshNodePorts {
  readonly transport: MeshOptions["transport"];
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
}

/** @throws whatever the transport throws */
export async function startMeshNode(options: MeshNodeOptions, given: MeshNodePorts): Promise<MeshNode> {
  const { routerId, seeds, redisUrl } = options;
  const { clock, scheduler, transport, logger } = given;
  const index = createPrefixIndex({ maxTargets });
  const slots = createTargetSlots(maxTargets);
  const router = asRouterId(routerId);
  const ports = { clock, scheduler, logger, meter: silentMeter };
  const replica = createReplica({ ...ports, router, index, slots, placementTtlMs });
  const wallTime = createWallTime(clock);
  const random = createSeededRandom(textBits(routerId) ^ options.seed);
  const parts = { ...options, replica, index, slots, clock, scheduler, random, wallTime, load: replica.load };
  const feeds = createNodeFeeds(parts);
  const probes = createNodeProbes(parts);
  const gauges = createNodeGauges(parts);
  const shared = {
    ...{ ...ports, replica: gauges.watched(replica.ports), random },
    ...{ cluster: "bench", fleetSeed: "bench", blockSizeTokens: 16 },
  };
  const mesh: Backend =
    redisUrl === undefined
      ? createMesh({ ...shared, transport, security: { kind: "insecure" }, seeds })
      : createRedisBackend({ ...shared, url: redisUrl });
  const stalls = createLoopStalls({ clock, scheduler, cpuMs: systemCpuMs });
  const changed = (): void => replica.setMembers(mesh.members());
  mesh.onMembers(changed);
  const readiness = createNodeReadiness({ mesh, index, clock, scheduler });
  await replica.start();
  readiness.start();
  await mesh.start();
  changed();
  const cancelUpkeep = scheduler.every(upkeepMs, () => index.maintain(clock.nowMs(), upkeepSteps));
  const sources = [feeds, probes, gauges];
  const counters = createCounters(mesh, clock);
  const stop = async (): Promise<void> => {
    for (const source of sources) source.stop();
    cancelUpkeep();
    stalls.stop();
    readiness.stop();
    await mesh.leave();
    await mesh.stop();
    await replica.stop();
  };
  const commands = createCommands({ index, replica, feeds, probes, gauges, stalls, readiness, counters, stop });
  return { address: mesh.describe().address ?? "", stop, commands };
}

interface CommandParts {
  readonly index: PrefixIndex;
  readonly replica: Replica;
  readonly feeds: NodeFeeds;
  readonly probes: NodeProbes;
  readonly gauges: NodeGauges;
  readonly stalls: LoopStalls;
  readonly readiness: NodeReadiness;
  readonly counters: ReturnType<typeof createCounters>;
  readonly stop: () => Promise<void>;
}

function createCommands(parts: CommandParts): MeshNode["commands"] {
  const { index, replica, feeds, probes, gauges, stalls, readiness, counters, stop } = parts;
  const sources = [feeds, probes, gauges];
  return {
    fill: async () => ({ blocks: await feeds.fill() }),
    async start() {
      for (const source of sources) source.start();
      return {};
    },
    async stop() {
      for (const source of sources) source.stop();
      return {};
    },
    digest: async () => ({ targets: digestsOf(replica) }),
    stats: async () => ({
      ...counters.read(),
      ops: feeds.ops,
      messages: feeds.messages,
      skippedOps: feeds.skippedOps,
      stallMs: stalls.worstMs,
      busyStallMs: stalls.worstBusyMs,
      probesSent: probes.sent.all,
      gaugesSent: gauges.sent.all,
      probesSeen: probes.seen.toJson(),
      gaugesSeen: gauges.seen.toJson(),
      ...sizesOf(index, replica),
    }),
    async reset() {
      for (const source of [counters, feeds, stalls]) source.reset();
      for (const { sent, seen } of [probes, gauges]) {
        sent.reset();
        seen.reset();
      }
      return {};
    },
    ready: async () => readiness.state(),
    async leave() {
      await stop();
      return {};
    },
  };
}

/** Counters kept elsewhere, since the last reset. */
function createCounters(mesh: Backend, clock: Clock) {
  const now = () => {
    const { members } = mesh.describe();
    const sum = (of: "sentBytes" | "receivedBytes"): number => members.reduce((total, member) => total + member[of], 0);
    return {
      elapsedMs: clock.nowMs(),
      cpuMs: systemCpuMs(),
      sentBytes: sum("sentBytes"),
      receivedBytes: sum("receivedBytes"),
    };
  };
  let base = now();
  return {
    read() {
      const { elapsedMs, cpuMs, sentBytes, receivedBytes } = now();
      return {
        elapsedMs: elapsedMs - base.elapsedMs,
        cpuMs: cpuMs - base.cpuMs,
        sentBytes: sentBytes - base.sentBytes,
        receivedBytes: receivedBytes - base.receivedBytes,
      };
    },
    reset() {
      base = now();
    },
  };
}

function sizesOf(index: PrefixIndex, replica: Replica) {
  return {
    blocks: index.factCount,
    indexBytes: index.byteLength,
    journalBytes: replica.store.stats().byteLength,
    foldBytes: replica.fold.byteLength,
    residentBytes: process.memoryUsage.rss(),
  };
}

function digestsOf({ fold }: Replica): TargetDigest[] {
  const digests = [...fold.states()].flatMap(({ target }) => {
    const statement = fold.statement(target);
    if (!statement) return [];
    const { epoch, sequence, blocks, digest } = statement;
    return [{ target, epoch, sequence, blocks, digest: [digest[0], digest[1]] as const }];
  });
  return digests.sort((one, other) => (one.target < other.target ? -1 : 1));
}
