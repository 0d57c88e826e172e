import { asRouterId, createSeededRandom, type RouterId, silentLogger, silentMeter } from "@espalier/core";
import type { DocumentUpdate, Member } from "@espalier/mesh";
import { createPrefixIndex, type LedgerSink, type PrefixIndex, tier } from "@espalier/prefix-index";
import { createReplica, createTargetSlots, type FeedReader, type Replica } from "@espalier/shared-tree";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { SyntheticFeed } from "../support/synthetic-feed.ts";
import { textBits } from "../support/text-bits.ts";

/** One message as a ledger passes it to its sink, prepared so that its creation is not timed. */
export interface RecordedStep {
  readonly removed: Uint32Array;
  readonly stored: Uint32Array;
}

/** One target's feed, at the router that owns it. */
export interface RigFeed {
  readonly target: string;
  readonly feed: SyntheticFeed;
  readonly reader: FeedReader;
}

/** A router without a mesh: its commits stay in `outbox` until they are taken. */
export class RigRouter {
  readonly id: RouterId;
  readonly time: VirtualTime;
  readonly index: PrefixIndex = createPrefixIndex({ maxTargets: maxRigTargets });
  readonly replica: Replica;
  readonly feeds: RigFeed[] = [];
  /** Own updates that were not delivered yet. */
  readonly outbox: DocumentUpdate[] = [];

  constructor(id: string, time: VirtualTime, tickMs: number) {
    this.id = asRouterId(id);
    this.time = time;
    const { clock, scheduler } = time;
    this.replica = createReplica({
      ...{ router: this.id, index: this.index, slots: createTargetSlots(maxRigTargets), clock, scheduler, tickMs },
      ...{ logger: silentLogger, meter: silentMeter, placementTtlMs },
    });
    void this.replica.start();
    this.replica.ports.documents.onUpdate((update, isOwn) => {
      if (isOwn && update.name.startsWith("journal/")) this.outbox.push(update);
    });
  }

  open(target: string, liveBlocks: number, seed: number): RigFeed {
    const feedSeed = (textBits(target) ^ seed) >>> 0;
    const feed = new SyntheticFeed({ random: createSeededRandom(feedSeed), seed: feedSeed, liveBlocks });
    const reader = this.replica.openFeed(target, (sink) => feed.tellAll(sink));
    reader.setRole("owner");
    reader.setQuality("complete", "live", "synthetic", null);
    const opened = { target, feed, reader };
    this.feeds.push(opened);
    return opened;
  }

  /** Applies the commits of others. As from a socket, the receiver owns the bytes. */
  take(updates: readonly DocumentUpdate[]): void {
    for (const update of updates) {
      const outcome = this.replica.ports.documents.apply(update);
      if (outcome !== "applied") throw new Error(`an update of ${update.name} was ${outcome}`);
    }
  }

  /** Bytes of the journals and the fold, and of the index. */
  sizes(): { readonly journals: number; readonly fold: number; readonly index: number; readonly blocks: number } {
    const journals = this.replica.store.stats().byteLength;
    return { journals, fold: this.replica.fold.byteLength, index: this.index.byteLength, blocks: this.index.factCount };
  }
}

/** More than any part of the bench uses. */
const maxRigTargets = 1_024;
const placementTtlMs = 600_000;

/** Creates one message. @returns it, and how many blocks it stores and removes */
export function recordStep(feed: SyntheticFeed): RecordedStep {
  let removed = new Uint32Array();
  let stored = new Uint32Array();
  const refuse = (): never => {
    throw new Error("made-up engines have no holes");
  };
  feed.step({
    removed: (_tier, words, from, to) => (removed = words.slice(2 * from, 2 * to)),
    stored: (_tier, words, from, to) => (stored = words.slice(2 * from, 2 * to)),
    orphaned: refuse,
    holeGone: refuse,
    cleared: refuse,
  });
  return { removed, stored };
}

/** Blocks stored and removed. */
export const opsOf = ({ removed, stored }: RecordedStep): number => (removed.length + stored.length) / 2;

/** Passes a recorded message to a ledger's sink. */
export function playStep({ removed, stored }: RecordedStep, sink: LedgerSink): void {
  if (removed.length > 0) sink.removed(tier.gpu, removed, 0, removed.length / 2);
  if (stored.length > 0) sink.stored(tier.gpu, stored, 0, stored.length / 2);
}

/** Another live router as a mesh lists it. */
export function livingMember({ replica }: RigRouter): Member {
  return { origin: replica.ports.origin, state: "alive", isDraining: false, isLinked: true, unreachable: [] };
}

export const newTime = (): VirtualTime => createVirtualTime();
