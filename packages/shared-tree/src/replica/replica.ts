import type { Cancel, Clock, Logger, Meter, RouterId, Scheduler, Startable } from "@espalier/core";
import {
  createHybridClock,
  type HybridClock,
  joinPlanes,
  type Member,
  type Origin,
  originKey,
  type PlaneExchange,
  type ReplicaPorts,
} from "@espalier/mesh";
import type { LedgerSink, PrefixIndex } from "@espalier/prefix-index";
import type { JournalObserver, JournalStats } from "../documents/journal.ts";
import { type JournalLimits, Journals } from "../documents/journal-store.ts";
import { epochId } from "../facts/engine-epoch.ts";
import { FactFold, type FoldState } from "../facts/fact-fold.ts";
import type { FactEntry } from "../facts/fact-item.ts";
import type { DeclarationOf } from "../facts/feed-declaration.ts";
import type { TargetSlots } from "../facts/target-slots.ts";
import { createFeedReader, type FeedReader } from "../feeds/feed-reader.ts";
import { FeedTable } from "../feeds/feed-table.ts";
import { LoadPlane } from "../load/load-plane.ts";
import { noteKind } from "../notes/note-frame.ts";
import { NotePlane } from "../notes/note-plane.ts";
import { type Bindings, createBindings } from "../placements/bindings.ts";
import { PlacementLog } from "../placements/placement-log.ts";
import { Registry, type RegistryDocument } from "../registry/registry.ts";
import { usageNoteKind } from "../usage/usage-frame.ts";
import { UsagePlane } from "../usage/usage-plane.ts";
import { type CollectDeadJournals, createDeadJournals } from "./dead-journals.ts";
import { createSnapshotRequests, type SnapshotRequests } from "./snapshot-requests.ts";

const upkeepMs = 1_000;
const defaultTickMs = 15;
/** Decisions close together, and their load, cost one transaction. */
const gatherMs = 4;

export interface ReplicaOptions {
  readonly router: RouterId;
  /** Filled by the replica, the only writer of its facts. */
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
  /** The longest time that a placement is believed. */
  readonly placementTtlMs: number;
  /** Least time between two transactions of the own journal. Default: 15 ms. */
  readonly tickMs?: number;
  /** Defaults: those of journals. */
  readonly journalLimits?: Partial<JournalLimits>;
}

export interface ReplicaDescription {
  readonly origin: Origin;
  readonly journals: JournalStats;
  readonly foldBytes: number;
  readonly targets: readonly FoldState[];
  readonly load: ReturnType<LoadPlane["describe"]>;
}

/** A replica with an empty journal, whose epoch begins now. Nothing goes out before a backend listens. */
export function createReplica(options: ReplicaOptions): Replica {
  return new Replica(options);
}

/**
 * All that this router shares with the others, as one object. It moves nothing by itself: a backend does, through
 * `ports`.
 */
export class Replica implements Startable {
  readonly ports: ReplicaPorts;
  readonly store: Journals;
  readonly fold: FactFold;
  readonly feeds: FeedTable;
  readonly load: LoadPlane;
  readonly notes: NotePlane;
  readonly usage: UsagePlane;
  readonly placements: PlacementLog;
  readonly bindings: Bindings;
  readonly registry: Registry;
  readonly #options: ReplicaOptions;
  readonly #collectDead: CollectDeadJournals;
  readonly #schedule: CommitSchedule;
  readonly #requests: SnapshotRequests;
  readonly #hybrid: HybridClock;
  #cancelUpkeep: Cancel = () => {};
  #isCheckpointTaken = false;
  readonly #joinCompaction: JoinCompaction;
  /** Only the living router of the lowest id begins another generation of the registry. */
  #isLowest = true;

  constructor(options: ReplicaOptions) {
    const { router, index, slots, clock, scheduler, meter } = options;
    const self = (): Origin => this.store.own.origin;
    this.#options = options;
    this.#hybrid = createHybridClock(clock);
    this.store = new Journals({
      origin: { router, epoch: clock.wallMs() },
      clock,
      limits: options.journalLimits ?? {},
      ownObserver: {
        pending: () => this.#schedule.touch(),
        claimChanged: (target, claim) => this.feeds.claimChanged(self(), target, claim),
      },
    });
    this.#joinCompaction = createJoinCompaction(clock, () => this.#schedule.touch());
    this.#requests = createSnapshotRequests({
      ...{ clock, scheduler },
      isLoading: (target) => this.fold.state(target)?.progress === "loading",
      onGivenUp: (targets) => this.fold.giveUpLoading(targets),
    });
    this.fold = new FactFold({
      ...{ index, slots, clock, meter, self: router },
      reload: (target, _reason, from) => this.#requests.add(target, from),
    });
    this.feeds = new FeedTable({ fold: this.fold, slots, self, clock, meter });
    this.#schedule = createCommitSchedule({
      ...{ clock, scheduler, tickMs: options.tickMs ?? defaultTickMs, gatherMs },
      commit: () => this.#commit(),
    });
    this.load = new LoadPlane({ self, slots, clock, scheduler, meter });
    this.usage = new UsagePlane({ self, clock, scheduler, meter });
    this.notes = new NotePlane({ self, clock, scheduler, meter });
    const touch = (): void => this.#schedule.touch();
    const hlc = this.#hybrid;
    this.bindings = createBindings({ self, clock, hlc, touch });
    this.placements = new PlacementLog({
      ...{ self, index, slots, clock, meter, hlc, touch, journal: this.store.own, bindings: this.bindings },
      epochOf: (target) => this.fold.state(target)?.epoch,
    });
    this.registry = new Registry({ self, clock, hlc, meter });
    shareRegistry(this.registry, this.store);
    this.#collectDead = createDeadJournals({
      ...{ clock, self, store: this.store, fold: this.fold },
      placementTtlMs: options.placementTtlMs,
    });
    this.ports = this.#createPorts();
    this.store.observe(this.#observer());
    this.fold.onChange((target) => this.feeds.foldChanged(target));
  }

  async start(): Promise<void> {
    this.load.start();
    this.usage.start();
    this.notes.start();
    this.#cancelUpkeep = this.#options.scheduler.every(upkeepMs, () => this.#upkeep());
  }

  async stop(): Promise<void> {
    this.#cancelUpkeep();
    this.#schedule.stop();
    this.load.stop();
    this.usage.stop();
    this.notes.stop();
  }

  /**
   * Begins to read a target's feed for all routers.
   *
   * @param tellAll passes everything that the reader's ledger holds to a sink
   */
  openFeed(target: string, tellAll: (sink: LedgerSink) => void): FeedReader {
    const { clock, logger, meter, index, slots } = this.#options;
    const reader = createFeedReader({
      ...{ key: target, clock, logger, meter, index, slots, tellAll },
      ...{ journal: this.store.own, fold: this.fold, stamp: () => this.#hybrid.now() },
      claimsOf: () => this.feeds.claimsOf(target),
      takeCheckpointTurn: () => this.#takeCheckpointTurn(),
      // An item goes once its last feed is checkpointed. With too many items, feeds that have hardly moved are
      // checkpointed too.
      isCheckpointWanted: (ops) => this.#joinCompaction.isCheckpointWanted(ops) || (ops > 0 && this.store.own.isLong),
      onStop: () => this.feeds.closed(target, reader),
    });
    this.feeds.opened(target, reader);
    return reader;
  }

  /** Call it whenever the set of living routers changes. */
  setMembers(members: readonly Member[]): void {
    this.feeds.setMembers(members);
    this.#joinCompaction.setMembers(members);
    const { router } = this.store.own.origin;
    this.#isLowest = members.every(({ origin, state }) => state !== "alive" || origin.router > router);
    this.#collectDead((origin) => this.feeds.isLiving(origin));
  }

  /** Drops what is shared of a target whose engine is not in this router's fleet and that no router reads. */
  forgetTarget(target: string): void {
    this.store.own.retireFeedsOf(target);
    this.fold.forgetTarget(target);
    this.load.release(target);
    this.#options.slots.release(target);
  }

  describe(): ReplicaDescription {
    return {
      origin: this.store.own.origin,
      journals: this.store.stats(),
      foldBytes: this.fold.byteLength,
      targets: [...this.fold.states()],
      load: this.load.describe(),
    };
  }

  /** One feed may be checkpointed per commit, so that checkpoints spread. */
  #takeCheckpointTurn(): boolean {
    const isFree = !this.#isCheckpointTaken;
    this.#isCheckpointTaken = true;
    return isFree;
  }

  #commit(): void {
    this.#isCheckpointTaken = false;
    for (const reader of this.feeds.readers) reader.maintain();
    this.placements.flush();
    this.store.own.commit();
  }

  #upkeep(): void {
    this.#collectDead((origin) => this.feeds.isLiving(origin));
    this.registry.expire();
    this.fold.maintain();
    this.#requests.retry(loadingTargets(this.fold));
    if (this.#isLowest && this.registry.needsRotation) this.registry.rotate();
    this.#schedule.touch();
  }

  /** The replica as the carriers of its content see it. */
  #createPorts(): ReplicaPorts {
    const { store, fold } = this;
    const requests = this.#requests;
    const byKind = new Map<number, PlaneExchange>([
      [noteKind, this.notes.exchange],
      [usageNoteKind, this.usage.exchange],
    ]);
    return {
      get origin() {
        return store.own.origin;
      },
      documents: store,
      load: this.load.exchange,
      notes: joinPlanes(byKind),
      snapshots: {
        exportFrames: (maxBytes, targets, to) => {
          if (targets && to) fold.lackedBy(to, targets);
          return fold.exportFrames(maxBytes, targets);
        },
        beginImport: () => requests.importing(fold.beginImport()),
        onRequest: requests.onRequest,
        unavailable: ({ targets }) => fold.giveUpLoading(targets ?? loadingTargets(fold)),
      },
      statements: () =>
        this.feeds.owned().flatMap((target) => {
          const statement = fold.statement(target);
          return statement ? [statement] : [];
        }),
      compareStatement: (statement, from) => void fold.compare(statement, from),
      highestEpoch: (router) => store.highestEpoch(router),
      renewEpoch: (above) => this.#renewEpoch(above),
    };
  }

  #observer(): JournalObserver {
    return {
      feedDeclared: (_origin, _feed, declaration) => this.fold.declare(declaration),
      claimChanged: (origin, target, claim) => {
        if (claim) this.#hybrid.observe(claim.stamp);
        this.feeds.claimChanged(origin, target, claim);
        // A reader here may have to take over a feed that no router reads any more.
        if (!claim) this.#schedule.touch();
      },
      facts: (origin, entries, declarationOf) => {
        this.#declareForgotten(entries, declarationOf);
        this.fold.apply(origin, entries, declarationOf);
        this.feeds.factsSeen(origin, entries, declarationOf);
      },
      placements: (origin, item, declarationOf) => this.placements.receive(origin, item, declarationOf),
      journalDropped: (origin) => {
        this.placements.journalDropped(origin);
        this.feeds.dropOrigin(origin);
      },
    };
  }

  /** A target that was forgotten here is known again when others still write about it. */
  #declareForgotten(entries: readonly FactEntry[], declarationOf: DeclarationOf): void {
    let last = -1;
    for (const { feed } of entries) {
      if (feed === last) continue;
      last = feed;
      const declaration = declarationOf(feed);
      if (declaration && !this.fold.state(declaration.target)) this.fold.declare(declaration);
    }
  }

  /**
   * Abandons the old journal. Epochs of engines that it named are named again, because no other router may know them.
   * The readers lose their roles last: one that must read on at once claims its feed in the present journal.
   */
  #renewEpoch(above: number): void {
    const { origin } = this.store.own;
    const declared = Array.from(this.store.feedsOf(origin), ({ declaration }) => declaration);
    this.store.restart(Math.max(above + 1, this.#options.clock.wallMs()));
    for (const { target, epoch } of declared) {
      const newest = this.fold.state(target)?.epoch;
      if (epoch && newest && epochId(epoch) === epochId(newest)) this.store.own.placingFeed({ target, epoch });
    }
    for (const reader of this.feeds.readers) reader.setRole("none");
    this.feeds.dropOrigin(origin);
  }
}

/** Targets that wait for a snapshot. */
function loadingTargets(fold: FactFold): readonly string[] {
  return [...fold.states()].flatMap(({ target, progress }) => (progress === "loading" ? [target] : []));
}

/** A feed with fewer changes since its last checkpoint gets no other checkpoint. */
export const minCompactionOps = 256;
/** How long feeds are checkpointed for a router that has just come. */
export const compactionMs = 500;

/**
 * Makes journals short for a router that joins. It fetches the state of all targets as a snapshot, and the journals
 * besides: each feed's owner can cut away what is in both before it is sent.
 */
type JoinCompaction = ReturnType<typeof createJoinCompaction>;

/** @param touch called when feeds should be checkpointed now */
export function createJoinCompaction(clock: Clock, touch: () => void) {
  let known = new Set<string>();
  let untilMs = Number.NEGATIVE_INFINITY;
  return {
    setMembers(members: readonly Member[]): void {
      const alive = new Set(members.flatMap(({ origin, state }) => (state === "alive" ? [originKey(origin)] : [])));
      const hasNew = [...alive].some((key) => !known.has(key));
      known = alive;
      if (!hasNew) return;
      untilMs = clock.nowMs() + compactionMs;
      touch();
    },
    isCheckpointWanted: (ops: number): boolean => ops >= minCompactionOps && clock.nowMs() < untilMs,
  };
}

/** Lets the registry's documents take part in the exchange: the present one, and the next while all move to it. */
export function shareRegistry(registry: Registry, store: Journals): void {
  const attached = new Map<string, Cancel>();
  const follow = ({ name, doc, isOpen }: RegistryDocument): void => {
    if (isOpen && !attached.has(name)) attached.set(name, store.attachShared(name, doc));
    else if (!isOpen) {
      attached.get(name)?.();
      attached.delete(name);
    }
  };
  for (const document of registry.documents()) follow(document);
  registry.onDocument(follow);
  store.onUnknown((name) => {
    const doc = registry.open(name);
    if (doc) follow({ name, doc, isOpen: true });
  });
}

interface CommitScheduleOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Least time between two commits, in milliseconds. */
  readonly tickMs: number;
  /**
   * How long the first pending record after quiet waits for related ones. Default: to the end of the event loop's turn.
   */
  readonly gatherMs?: number;
  readonly commit: () => void;
}

/** Decides when what is pending is committed. */
export type CommitSchedule = ReturnType<typeof createCommitSchedule>;

/**
 * After quiet a commit follows a little later, so that related records go together. Under load there is one per tick,
 * because the cost of replication is per transaction, not per record.
 */
export function createCommitSchedule(options: CommitScheduleOptions) {
  const { clock, scheduler, tickMs, gatherMs = 0, commit } = options;
  let cancel: Cancel | undefined;
  let lastMs = Number.NEGATIVE_INFINITY;
  return {
    /** Something is pending. */
    touch(): void {
      if (cancel) return;
      const waitMs = Math.max(gatherMs, lastMs + tickMs - clock.nowMs());
      cancel = scheduler.after(waitMs, () => {
        cancel = undefined;
        lastMs = clock.nowMs();
        commit();
      });
    },
    stop(): void {
      cancel?.();
      cancel = undefined;
    },
  };
}
