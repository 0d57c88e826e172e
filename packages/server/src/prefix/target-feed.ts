import type { Clock, Logger, Meter, Scheduler, TargetIndex } from "@espalier/common";
import {
  createKvFeed,
  type EventDecoder,
  type EventTransport,
  type FeedEndpoints,
  type FeedReason,
  type FeedState,
  type KvFeed,
  type ReplayGate,
  type WorkSlices,
} from "@espalier/kv-events";
import {
  type BlockDigests,
  eventKind,
  FeedLedger,
  type PrefixIndex,
  type TierName,
  tier,
  tierNames,
} from "@espalier/prefix-index";
import type { Target } from "@espalier/workers";
import type { TargetFeedDescription } from "./engine-feeds.ts";
import type { FeedStanding } from "./prefix-knowledge.ts";
import type { RecentPrompts } from "./recent-prompts.ts";

/** What the feeds of a router share. */
export interface TargetFeedParts {
  readonly index: PrefixIndex;
  readonly recent: RecentPrompts;
  readonly digests: BlockDigests;
  /** Tokens of a block of the index. */
  readonly blockSize: number;
  /** Called when a target runs anew: nothing that was known of it holds. */
  readonly forget: (target: TargetIndex) => void;
  /** Called when a target has emptied its cache: what was guessed of it does not hold. */
  readonly forgetPlacements: (target: TargetIndex) => void;
  readonly decoder: EventDecoder;
  readonly slices: WorkSlices;
  readonly replayGate: ReplayGate;
  readonly transport: EventTransport;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** What was told before a connection was lost may be of an engine that is gone; a hole in what it tells changes less. */
function standingOf(state: FeedState, reason: FeedReason): FeedStanding {
  switch (state) {
    case "live":
      return "complete";
    case "partial":
      return "partial";
    case "replaying":
      return reason === "filling-gap" || reason === "overflow" ? "partial" : "void";
    case "stale":
      return "void";
    case "off":
      return "none";
  }
}

/** The events of one target on their way into the index. */
export class TargetFeed {
  readonly #parts: TargetFeedParts;
  readonly #target: Target;
  readonly #ledger: FeedLedger;
  readonly #feed: KvFeed;
  #hasFloating = false;
  #standing: FeedStanding = "none";
  /** Its blocks cannot be told in blocks of the index. */
  #isUnusable = false;

  constructor(parts: TargetFeedParts, target: Target, endpoints: FeedEndpoints) {
    const { index, digests, blockSize, forget, forgetPlacements } = parts;
    const number = target.index;
    this.#parts = parts;
    this.#target = target;
    this.#ledger = new FeedLedger({
      blockSize,
      digests,
      sink: {
        stored: (inTier, words, from, to) => index.storeFacts(number, inTier, words, from, to),
        removed: (inTier, words, from, to) => index.removeFacts(number, inTier, words, from, to),
        orphaned: (inTier, words, at, depth) => index.removeOrphan(number, inTier, words, { index: at, depth }),
        holeGone: (inTier, words, at) => {
          if (inTier === tier.gpu) index.forgetOrphan(number, words, at);
        },
        cleared: () => index.clearFacts(number),
      },
    });
    this.#feed = createKvFeed({
      ...parts,
      key: target.key,
      endpoints,
      sink: {
        batch: (batch) => {
          if (batch.kind.subarray(0, batch.count).includes(eventKind.cleared)) forgetPlacements(number);
          const { floatedBlocks, refusedEvents } = this.#ledger.apply(batch);
          this.#hasFloating ||= floatedBlocks > 0;
          if (refusedEvents > 0) this.#isUnusable = this.#ledger.stats().unusable !== undefined;
          this.attach();
        },
        newLife: () => {
          this.#ledger.clear();
          this.#isUnusable = false;
          forget(number);
        },
        state: (state, reason) => {
          this.#standing = standingOf(state, reason);
        },
      },
    });
  }

  start(): Promise<void> {
    return this.#feed.start();
  }

  async stop(): Promise<void> {
    await this.#feed.stop();
    this.#ledger.clear();
    this.#standing = "none";
  }

  get standing(): FeedStanding {
    return this.#isUnusable ? "none" : this.#standing;
  }

  /** Gives floating blocks their place, where a prompt that was placed here shows it. */
  attach(): void {
    if (!this.#hasFloating) return;
    this.#ledger.attachFloating(this.#parts.recent.find);
    this.#hasFloating = this.#ledger.stats().floatingBlocks > 0;
  }

  describe(): TargetFeedDescription {
    const { blocks, floatingBlocks, unusable } = this.#ledger.stats();
    const held = Object.fromEntries(tierNames.map((name, at) => [name, blocks[at] ?? 0]));
    return {
      target: this.#target.key,
      ...this.#feed.describe(),
      blocks: held as Record<TierName, number>,
      floatingBlocks,
      unusable: unusable ?? null,
    };
  }
}
