import type { Cancel, Scheduler } from "@espalier/common";
import type { FeedRole, Ownership } from "@espalier/mesh";
import type { TierName } from "@espalier/prefix-index";
import type { FeedReader, Replica } from "@espalier/replication";
import type { EventReading, FeedHost, FeedOutput, FeedStatus, FeedTarget, HostedFeed } from "../feed-host.ts";
import type { FeedStanding } from "../prefix/prefix-knowledge.ts";

/** Reads the events of those targets whose feeds fall to this router, for all routers. */
export interface SharedHost extends FeedHost {
  /** To be called when the role of this router for a target changes. */
  setRole(target: string, role: FeedRole): void;
  /** Targets with events that the routers read. */
  targets(): readonly string[];
}

interface SharedHostParts {
  readonly replica: Replica;
  readonly ownership: () => Ownership;
  readonly reach: ReachWatch;
  /** Blocks that a target has announced, by tier. */
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
        parts.reach.forget(target.key);
      });
      feeds.set(target.key, feed);
      ownership().addTarget(target.key);
      return feed;
    },
    setRole: (target, role) => feeds.get(target)?.setRole(role),
    targets: () => [...feeds.keys()],
  };
}

/** What is told of a feed that nobody claims. */
const unread = { state: "off", reason: "not-started", unusable: null };

/** Undefined while that is not known. */
function isConnected(state: string, reason: string): boolean | undefined {
  if (reason === "connecting" || reason === "endpoint-unusable" || reason === "socket-lost") return false;
  return state === "off" ? undefined : true;
}

/** One target's feed: read as owner or as backup, or by another router. */
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

  get standing(): FeedStanding {
    return this.#parts.replica.qualityOf(this.#target.key);
  }

  setRole(role: FeedRole): void {
    // The owner is told again while its claim does not hold.
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
    const { replica, ownership, reach } = this.#parts;
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
      newLife: () => reader.newLife(),
      emptied: () => {},
      condition: ({ standing, state, reason, unusable }) => {
        reader.setQuality(standing, state, reason, unusable ?? null);
        ownership().setQuality(key, standing);
        reach.note(key, isConnected(state, reason));
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

/** A socket that is not connected after so long is taken for one that this router cannot reach. */
const unreachedMs = 2_000;

/** Which targets' event sockets this router cannot reach, so that another one reads them. */
interface ReachWatch {
  /** @param isConnected undefined when this router does not try */
  note(target: string, isConnected: boolean | undefined): void;
  /** The target is none of this router's any more. */
  forget(target: string): void;
}

/** @param onChange told of all of them when one comes or goes */
export function createReachWatch(scheduler: Scheduler, onChange: (targets: readonly string[]) => void): ReachWatch {
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
        const cancel = scheduler.after(unreachedMs, () => {
          pending.delete(target);
          unreachable.add(target);
          onChange([...unreachable]);
        });
        pending.set(target, cancel);
        return;
      }
      unwatch(target);
      // Whoever stops trying does not know that it could reach it now: it says so until it has tried again.
      if (isConnected) noteReached(target);
    },
    forget(target) {
      unwatch(target);
      noteReached(target);
    },
  };
}
