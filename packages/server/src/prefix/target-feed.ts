import type { BlockDigests, Clock, Logger, Meter, Random, Scheduler } from "@espalier/core";
import type { EventDecoder } from "@espalier/engine-model/kv-events";
import {
  type EngineEventBatch,
  eventKind,
  FeedLedger,
  type LedgerSink,
  type TierName,
  tierNames,
} from "@espalier/prefix-index";
import type { RecentPrompts } from "@espalier/routing";
import type { FeedOutput, FeedQuality, FeedTarget } from "@espalier/shared-tree";
import {
  createKvFeed,
  type EventTransport,
  type FeedEndpoints,
  type FeedReason,
  type FeedState,
  type KvFeed,
  type ReplayGate,
  type WorkSlices,
} from "@espalier/shared-tree/events";
import type { TargetFeedDescription } from "./engine-feeds.ts";
import type { MediaSightings } from "./media/media-sightings.ts";

/** Shared by all feeds of a router. */
export interface TargetFeedParts {
  readonly recent: RecentPrompts;
  readonly digests: BlockDigests;
  /** Tokens per block of the index. */
  readonly blockSize: number;
  readonly decoder: EventDecoder;
  readonly slices: WorkSlices;
  readonly replayGate: ReplayGate;
  readonly transport: EventTransport;
  /** Shares where the engine has images and the like; undefined where nobody learns from it. */
  readonly sightings?: Pick<MediaSightings, "note"> | undefined;
  /** Called with the lag of each live message, in milliseconds. */
  readonly onLag: (lagMs: number) => void;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/**
 * Blocks announced before a lost connection may belong to an earlier epoch, so they are void. A gap or a delay costs
 * less quality.
 */
function feedQualityOf(state: FeedState, reason: FeedReason): FeedQuality {
  switch (state) {
    case "live":
      return "complete";
    case "partial":
      return "partial";
    case "replaying":
      return reason === "filling-gap" || reason === "overflow" ? "partial" : "void";
    case "stale":
      return reason === "behind" ? "partial" : "void";
    case "off":
      return "none";
  }
}

/** Returns -1 for a time that routers cannot exchange. */
function microsecondsOf(timestampS: number): number {
  const timestampUs = Math.round(timestampS * 1_000_000);
  return Number.isSafeInteger(timestampUs) && timestampUs >= 0 ? timestampUs : -1;
}

/** Applies the events of one target to the index. */
export class TargetFeed {
  readonly #parts: TargetFeedParts;
  readonly #target: FeedTarget;
  readonly #ledger: FeedLedger;
  readonly #feed: KvFeed;
  readonly #output: FeedOutput;
  #state: FeedState = "off";
  #reason: FeedReason = "not-started";
  /** In the present epoch. */
  #lastSequence: number | undefined;
  /** Whether every message of the present epoch was read. */
  #isComplete = false;
  /** Blocks announced without tokens and otherwise unknown. */
  #unplacedBlocks = 0;
  /** Whether its blocks cannot be mapped to blocks of the index. */
  #isUnusable = false;

  /** @param output receives everything; knows nothing of the target yet */
  constructor(parts: TargetFeedParts, target: FeedTarget, endpoints: FeedEndpoints, output: FeedOutput) {
    const { digests, blockSize } = parts;
    this.#parts = parts;
    this.#target = target;
    this.#output = output;
    this.#ledger = new FeedLedger({ blockSize, digests, sink: output.sink });
    this.#feed = createKvFeed({
      ...parts,
      key: target.key,
      endpoints,
      sink: {
        lag: parts.onLag,
        batch: (batch, sequence, checksum) => this.#batch(batch, sequence, checksum),
        newEpoch: () => {
          this.#ledger.clear();
          this.#feed.setLacksParents(false);
          this.#lastSequence = undefined;
          this.#isUnusable = false;
          this.#unplacedBlocks = 0;
          output.newEpoch();
        },
        state: (state, reason) => {
          this.#state = state;
          this.#reason = reason;
          this.#tellCondition();
        },
      },
    });
  }

  /** Writes all known blocks of the target to an empty sink. */
  tellAll(sink: LedgerSink): void {
    this.#ledger.tellAll(sink);
  }

  start(): Promise<void> {
    return this.#feed.start();
  }

  async stop(): Promise<void> {
    await this.#feed.stop();
    this.#ledger.clear();
  }

  get quality(): FeedQuality {
    return this.#isUnusable ? "none" : feedQualityOf(this.#state, this.#reason);
  }

  /** Attaches floating blocks where a recently placed prompt contains them. */
  attach(): void {
    this.#attach("all");
  }

  #attach(trees: "all" | "fresh"): void {
    if (this.#ledger.lacksParents) this.#ledger.attachFloating(this.#parts.recent.find, trees);
    this.#feed.setLacksParents(this.#ledger.lacksParents);
  }

  describe(): TargetFeedDescription {
    const { blocks, floatingBlocks } = this.#ledger.stats();
    const held = Object.fromEntries(tierNames.map((name, at) => [name, blocks[at] ?? 0]));
    return {
      target: this.#target.key,
      role: null,
      owner: null,
      ...this.#feed.describe(),
      blocks: held as Record<TierName, number>,
      floatingBlocks,
      unplacedBlocks: this.#unplacedBlocks,
      unusable: this.#unusable ?? null,
    };
  }

  get #unusable(): string | undefined {
    return this.#feed.failure ?? this.#ledger.stats().unusable;
  }

  #batch(batch: EngineEventBatch, sequence: number, checksum: number): void {
    if (batch.kind.subarray(0, batch.count).includes(eventKind.cleared)) this.#output.emptied();
    const expected = this.#lastSequence === undefined ? 0 : this.#lastSequence + 1;
    this.#isComplete = sequence === expected && (this.#lastSequence === undefined || this.#isComplete);
    if (sequence > expected && this.#lastSequence !== undefined) this.#output.gap(expected, sequence - 1);
    this.#lastSequence = sequence;
    const { refusedEvents, unknownMoves, unknownRemovals } = this.#ledger.apply(batch);
    this.#unplacedBlocks += unknownMoves;
    // What is replayed may be long gone.
    if (this.#state === "live") this.#parts.sightings?.note(this.#target.key, batch, this.#ledger, this.#parts.digests);
    const wasUnusable = this.#isUnusable;
    if (refusedEvents > 0) this.#isUnusable = this.#ledger.stats().unusable !== undefined;
    this.#attach("fresh");
    const timestampUs = microsecondsOf(batch.timestampS);
    this.#output.batch({ sequence, timestampUs, checksum }, { isComplete: this.#isComplete, unknownRemovals });
    if (this.#isUnusable !== wasUnusable) this.#tellCondition();
  }

  #tellCondition(): void {
    this.#output.condition({
      quality: this.quality,
      state: this.#state,
      reason: this.#reason,
      unusable: this.#unusable,
    });
  }
}
