import type { Scheduler } from "@espalier/core";
import type { LedgerSink, TierName } from "@espalier/prefix-index";
import type { FeedHost, FeedStatus } from "./feed-host.ts";
import type { FeedReader } from "./feed-reader.ts";
import type { Feed, FeedTable } from "./feed-table.ts";
import type { Ownership } from "./ownership.ts";

/** Reads the events of the targets whose feeds this router owns, for all routers. */
export interface SharedHost extends FeedHost {
  /** Call when this router's role for a target changes. */
  roleChanged(target: string): void;
  /** Targets whose events the routers read. */
  targets(): readonly string[];
}

interface SharedHostParts {
  readonly feeds: FeedTable;
  /** Begins to read a target's feed for all routers. */
  readonly openFeed: (target: string, tellAll: (sink: LedgerSink) => void) => FeedReader;
  readonly ownership: Pick<Ownership, "addTarget" | "removeTarget" | "setQuality">;
  readonly reachability: Reachability;
  /** Number of blocks that a target has announced, by tier. */
  readonly blocksOf: (target: string) => Readonly<Record<TierName, number>>;
}

export function createSharedHost({ feeds, openFeed, ownership, reachability, blocksOf }: SharedHostParts): SharedHost {
  /** As owner or as backup. */
  const read = (feed: Feed): void => {
    const { target, make } = feed;
    if (feed.reading || !make) return;
    const reader = openFeed(target, (sink) => feed.reading?.tellAll(sink));
    feed.reading = make({
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
        ownership.setQuality(target, quality);
        reachability.note(feed, isConnected(state, reason));
      },
    });
    void feed.reading.start();
  };
  const close = async (feed: Feed): Promise<void> => {
    const { target, reading, reader } = feed;
    feed.reading = undefined;
    if (!reading) return;
    reader?.stop();
    ownership.setQuality(target, "none");
    await reading.stop();
  };
  return {
    open({ key, region }, make) {
      const feed = feeds.open(key);
      void close(feed);
      feed.make = make;
      ownership.addTarget(key, region);
      return {
        get quality() {
          return feeds.qualityOf(key);
        },
        attach: () => feed.reading?.attach(),
        describe: () => statusOf(feeds, feed, blocksOf(key)),
        async stop() {
          if (feed.make !== make) return;
          feed.make = undefined;
          ownership.removeTarget(key);
          reachability.forget(feed);
          await close(feed);
        },
      };
    },
    roleChanged(target) {
      const feed = feeds.get(target);
      if (!feed?.make) return;
      if (feed.role === "none") void close(feed);
      else {
        read(feed);
        feed.reader?.setRole(feed.role);
      }
    },
    targets: () => [...feeds.all()].flatMap(({ target, make }) => (make ? [target] : [])),
  };
}

/** The status of a feed that no router claims. */
const unread = { state: "off", reason: "not-started", unusable: null };

function statusOf(feeds: FeedTable, { target, reading, role }: Feed, blocks: FeedStatus["blocks"]): FeedStatus {
  const posted = feeds.claimOf(target);
  const { state, reason, unusable } = posted?.claim ?? unread;
  return {
    floatingBlocks: 0,
    ...(reading?.describe() ?? { target, state, reason, unusable }),
    ...{ blocks, role, owner: posted?.origin.router ?? null },
  };
}

/** Undefined while unknown. */
function isConnected(state: string, reason: string): boolean | undefined {
  if (reason === "connecting" || reason === "endpoint-unusable" || reason === "socket-lost") return false;
  return state === "off" ? undefined : true;
}

/** A socket that is not connected for this long counts as unreachable. */
const unreachableAfterMs = 2_000;

/** Notes which event sockets this router cannot reach, so that another router reads them. */
interface Reachability {
  /** @param isConnected undefined if this router does not try */
  note(feed: Feed, isConnected: boolean | undefined): void;
  /** This router no longer reads the target. */
  forget(feed: Feed): void;
}

/** @param onChange called when a feed becomes unreachable, or is so no more */
export function createReachability(scheduler: Scheduler, onChange: () => void): Reachability {
  const unwatch = (feed: Feed): void => {
    feed.cancelReach?.();
    feed.cancelReach = undefined;
  };
  const set = (feed: Feed, isUnreachable: boolean): void => {
    unwatch(feed);
    if (feed.isUnreachable === isUnreachable) return;
    feed.isUnreachable = isUnreachable;
    onChange();
  };
  return {
    note(feed, isConnected) {
      if (isConnected === true) set(feed, false);
      // Without an attempt a target stays unreachable: only a connection proves the opposite.
      else if (isConnected === undefined) unwatch(feed);
      else if (!feed.isUnreachable) feed.cancelReach ??= scheduler.after(unreachableAfterMs, () => set(feed, true));
    },
    forget: (feed) => set(feed, false),
  };
}
