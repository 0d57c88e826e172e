import { asRouterId, type Meter, silentLogger, silentMeter } from "@espalier/core";
import type { Member, Origin } from "@espalier/mesh";
import { createPrefixIndex, createPrefixMatches, type PrefixIndex, tier } from "@espalier/prefix-index";
import type { VirtualTime } from "@espalier/testing";
import type { JournalLimits } from "../../src/documents/journal-store.ts";
import { createTargetSlots, type TargetSlots } from "../../src/facts/target-slots.ts";
import type { FeedReader } from "../../src/feeds/feed-reader.ts";
import { createReplica, type Replica } from "../../src/replica/replica.ts";

/** A replica with its index. */
export interface Node {
  readonly replica: Replica;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  /** Blocks of a chain that a target holds by facts. */
  heldBlocks(target: string, chain: Uint32Array): number;
  placedBlocks(target: string, chain: Uint32Array): number;
}

/** @param room of its index and of journals, and what it counts with */
export function createNode(
  router: string,
  time: VirtualTime,
  room: { maxTargets?: number; maxBlocks?: number; meter?: Meter; journalLimits?: Partial<JournalLimits> } = {},
): Node {
  const { maxTargets = 64, maxBlocks = 65_536, meter = silentMeter, journalLimits = {} } = room;
  const index = createPrefixIndex({ maxTargets, maxBlocks, maxSets: 4_096 });
  const slots = createTargetSlots(maxTargets);
  const replica = createReplica({
    ...{ router: asRouterId(router), index, slots, clock: time.clock, scheduler: time.scheduler },
    ...{ logger: silentLogger, meter, journalLimits, placementTtlMs: 600_000 },
  });
  const matches = createPrefixMatches(maxTargets);
  const match = (chain: Uint32Array): void => index.match(chain, chain.length / 2, time.clock.nowMs(), matches);
  return {
    replica,
    index,
    slots,
    heldBlocks(target, chain) {
      match(chain);
      return matches.gpuBlocks[slots.find(target)] ?? 0;
    },
    placedBlocks(target, chain) {
      match(chain);
      return matches.placedBlocks[slots.find(target)] ?? 0;
    },
  };
}

/** Carries everything between replicas at once, without a network. */
export function join(nodes: readonly Node[]): void {
  for (const from of nodes) {
    from.replica.ports.documents.onUpdate((update, isOwn) => {
      if (!isOwn) return;
      for (const to of nodes) if (to !== from) to.replica.ports.documents.apply(update);
    });
    from.replica.ports.load.onFrame((frame) => {
      for (const to of nodes) if (to !== from) to.replica.ports.load.receive(frame);
    });
    from.replica.ports.snapshots.onRequest(({ targets, from: source }) => {
      const giver = nodes.find(({ replica }) => replica !== from.replica && isSame(replica.ports.origin, source));
      const sink = from.replica.ports.snapshots.beginImport();
      const other = giver ?? nodes.find((node) => node !== from)!;
      const { origin } = from.replica.ports;
      for (const frame of other.replica.ports.snapshots.exportFrames(65_536, targets, origin)) sink.frame(frame);
      sink.end();
    });
  }
  tellMembers(nodes, nodes);
}

function isSame(one: Origin, other: Origin | undefined): boolean {
  return one.router === other?.router && one.epoch === other.epoch;
}

/** Tells those of `nodes` who live that the others are gone. */
export function tellMembers(nodes: readonly Node[], living: readonly Node[]): void {
  for (const node of living) {
    node.replica.setMembers(
      nodes
        .filter((other) => other !== node)
        .map(
          (other): Member => ({
            origin: other.replica.ports.origin,
            state: living.includes(other) ? "alive" : "down",
            isDraining: false,
            isLinked: true,
            unreachable: [],
          }),
        ),
    );
  }
}

/** A chain of so many blocks that no other seed has. */
export function chainOf(seed: number, blocks: number): Uint32Array {
  const words = new Uint32Array(blocks * 2);
  for (let at = 0; at < words.length; at++) words[at] = Math.imul(seed * 65_537 + at + 1, 0x9e37_79b1);
  return words;
}

/** Tells a reader of one message that stored a chain, in an epoch of the engine that begins so many seconds later. */
export function store(reader: FeedReader, sequence: number, chain: Uint32Array, epoch = 0): void {
  reader.sink.stored(tier.gpu, chain, 0, chain.length / 2);
  reader.batch({ sequence, timestampUs: 1_000_000 * (epoch + 1) + sequence, checksum: sequence + 7 }, true);
}
