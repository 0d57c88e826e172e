import type { Cancel, Clock, Logger, Meter, RouterId, Scheduler, Startable } from "@espalier/common";
import type { LedgerSink, PrefixIndex } from "@espalier/prefix-index";
import type { JournalStats } from "../documents/journal.ts";
import type { JournalLimits, Journals } from "../documents/journal-store.ts";
import type { FactFold, FoldState } from "../facts/fact-fold.ts";
import type { TargetSlots } from "../facts/target-slots.ts";
import type { FeedQuality, PostedClaim } from "../feeds/feed-claim.ts";
import type { FeedReader } from "../feeds/feed-reader.ts";
import type { LoadPlane } from "../load/load-plane.ts";
import type { NotePlane } from "../notes/note-plane.ts";
import type { Origin } from "../origin.ts";
import type { Bindings } from "../placements/bindings.ts";
import type { PlacementLog } from "../placements/placement-log.ts";
import type { Registry } from "../registry/registry.ts";
import type { Member, ReplicaPorts } from "../replica-ports.ts";
import type { UsagePlane } from "../usage/usage-plane.ts";

export interface ReplicaOptions {
  readonly router: RouterId;
  /** Filled by the replica; nobody else writes facts to it. */
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

/** All that this router shares with the others, as one thing. It moves nothing by itself: a backend does, by `ports`. */
export interface Replica extends Startable {
  readonly ports: ReplicaPorts;
  readonly store: Journals;
  readonly fold: FactFold;
  readonly load: LoadPlane;
  readonly notes: NotePlane;
  readonly usage: UsagePlane;
  readonly placements: PlacementLog;
  readonly bindings: Bindings;
  readonly registry: Registry;
  /**
   * Begins to read a target's feed for all routers.
   *
   * @param tellAll tells a sink everything that the reader's ledger holds
   */
  openFeed(target: string, tellAll: (sink: LedgerSink) => void): FeedReader;
  /** Claims of every journal that is held, those of dead routers included. */
  claimsOf(target: string): readonly PostedClaim[];
  /** The claim that holds, among those of living routers. */
  claimOf(target: string): PostedClaim | undefined;
  /** What facts of a target are worth now. */
  qualityOf(target: string): FeedQuality;
  /** Told when claims, or what facts of a target are worth, may have changed. */
  onClaims(listener: (target: string) => void): Cancel;
  /** To be told whenever it changes who lives. */
  setMembers(members: readonly Member[]): void;
  /** The target's engine is not in this router's fleet, and nobody reads it: what is shared of it is let go of. */
  forgetTarget(target: string): void;
  describe(): ReplicaDescription;
}

export interface ReplicaDescription {
  readonly origin: Origin;
  readonly journals: JournalStats;
  readonly foldBytes: number;
  readonly targets: readonly FoldState[];
  readonly load: ReturnType<LoadPlane["describe"]>;
}
