import type { Cancel, Scheduler } from "@espalier/core";
import type { TierName } from "@espalier/prefix-index";
import type { Replica } from "../replica/replica.ts";
import type { FeedRole } from "./decide-role.ts";
import type { FeedQuality } from "./feed-claim.ts";
import type { EventReading, FeedHost, FeedOutput, FeedStatus, FeedTarget, HostedFeed } from "./feed-host.ts";
import type { FeedReader } from "./feed-reader.ts";
import type { Ownership } from "./ownership.ts";

/** Reads the events of the targets whose feeds this router owns, for all routers. */
export interface SharedHost extends FeedHost {
  /** Call when this router's role for a target changes. */
  setRole(target: string, role: FeedRole): void;
  /** Targets whose events the routers read. */
  targets(): readonly string[];
}

interface SharedHostParts {
  readonly replica: Replica;
  readonly ownership: () => Ownership;
  readonly reachability: Reachability;
  /** Number of blocks that a target has announced, by tier. */
  readonly blocksOf: (target: string) => Readonly<Record<TierName, number>>;
}

export function createSharedHost(parts: SharedHostParts): SharedHost {
  const { ownership } = parts;
  const feeds = new Map<string, SharedFeed>();
  return {
    open(target, make) {
      const feed = new SharedFeed(parts, target, make, () => {
        if (feeds.get(target.key) !== feed) return;
        feeds.delete(target.key);
        ownership().removeTarget(target.key);
        parts.reachability.forget(target.key);
      });
      feeds.set(target.key, feed);
      ownership().addTarget(target.key, target.region);
      return feed;
    },
    setRole: (target, role) => feeds.get(target)?.setRole(role),
    targets: () => [...feeds.keys()],
  };
}

/** The status of a feed that no router claims. */
const unread = { state: "off", reason: "not-started", unusable: null };

/** Undefined while unknown. */
function isConnected(state: string, reason: string): boolean | undefined {
  if (reason === "connecting" || reason === "endpoint-unusable" || reason === "socket-lost") return false;
  return state === "off" ? undefined : true;
}

/** One target's feed: this router reads it as owner or as backup, or another router reads it. */
class SharedFeed implements HostedFeed {
  readonly #parts: SharedHostParts;
  readonly #target: FeedTarget;
  readonly #make: (output: FeedOutput) => EventReading;
  readonly #onStop: () => void;
  #feed: EventReading | undefined;
  #reader: FeedReader | undefined;
  #role: FeedRole = "none";

  constructor(
    parts: SharedHostParts,
    target: FeedTarget,
    make: (output: FeedOutput) => EventReading,
    onStop: () => void,
  ) {
    this.#parts = parts;
    this.#target = target;
    this.#make = make;
    this.#onStop = onStop;
  }

  get quality(): FeedQuality {
    return this.#parts.replica.qualityOf(this.#target.key);
  }

  setRole(role: FeedRole): void {
    // An owner whose claim does not hold yet gets its role again.
    if (role === this.#role && role !== "owner") return;
    this.#role = role;
    if (role === "none") void this.#close();
    else {
      this.#open();
      this.#reader?.setRole(role);
    }
  }

  attach(): void {
    this.#feed?.attach();
  }

  describe(): FeedStatus {
    const { key } = this.#target;
    const posted = this.#parts.replica.claimOf(key);
    const { state, reason, unusable } = posted?.claim ?? unread;
    return {
      floatingBlocks: 0,
      ...(this.#feed?.describe() ?? { target: key, state, reason, unusable }),
      blocks: this.#parts.blocksOf(key),
      role: this.#role,
      owner: posted?.origin.router ?? null,
    };
  }

  async stop(): Promise<void> {
    this.#role = "none";
    this.#onStop();
    await this.#close();
  }

  #open(): void {
    if (this.#feed) return;
    const { replica, ownership, reachability } = this.#parts;
    const { key } = this.#target;
    const reader = replica.openFeed(key, (sink) => this.#feed?.tellAll(sink));
    this.#reader = reader;
    this.#feed = this.#make({
      sink: reader.sink,
      batch(mark, { isComplete, unknownRemovals }) {
        if (unknownRemovals > 0) reader.unknownRemovals(unknownRemovals);
        reader.batch(mark, isComplete);
      },
      gap: (from, to) => reader.gap(from, to),
      newEpoch: () => reader.newEpoch(),
      // Each router's fold ends the placements, its own and this one's.
      emptied: () => {},
      condition: ({ quality, state, reason, unusable }) => {
        reader.setQuality(quality, state, reason, unusable ?? null);
        ownership().setQuality(key, quality);
        reachability.note(key, isConnected(state, reason));
      },
    });
    void this.#feed.start();
  }

  async #close(): Promise<void> {
    const feed = this.#feed;
    this.#reader?.stop();
    this.#feed = undefined;
    this.#reader = undefined;
    this.#parts.ownership().setQuality(this.#target.key, "none");
    await feed?.stop();
  }
}

/** A socket that is not connected for this long counts as unreachable. */
const unreachableAfterMs = 2_000;

/** Event sockets of targets that this router cannot reach, so that another router reads them. */
interface Reachability {
  /** @param isConnected undefined if this router does not try */
  note(target: string, isConnected: boolean | undefined): void;
  /** This router no longer reads the target. */
  forget(target: string): void;
}

/** @param onChange called with all unreachable targets when one is added or removed */
export function createReachability(scheduler: Scheduler, onChange: (targets: readonly string[]) => void): Reachability {
  const pending = new Map<string, Cancel>();
  const unreachable = new Set<string>();
  const unwatch = (target: string): void => {
    pending.get(target)?.();
    pending.delete(target);
  };
  const noteReached = (target: string): void => {
    if (unreachable.delete(target)) onChange([...unreachable]);
  };
  return {
    note(target, isConnected) {
      if (isConnected === false) {
        if (pending.has(target) || unreachable.has(target)) return;
        const cancel = scheduler.after(unreachableAfterMs, () => {
          pending.delete(target);
          unreachable.add(target);
          onChange([...unreachable]);
        });
        pending.set(target, cancel);
        return;
      }
      unwatch(target);
      // Without an attempt a target stays unreachable: only a connection proves the opposite.
      if (isConnected) noteReached(target);
    },
    forget(target) {
      unwatch(target);
      noteReached(target);
    },
  };
}
