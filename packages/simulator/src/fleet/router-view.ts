import type { FleetUsage } from "@espalier/admission";
import type { Startable, TargetIndex } from "@espalier/common";
import type { NoteChannel, SharedLoad } from "@espalier/replication";
import type { MemoryWatch, PrefixKnowledge, RoutingTarget, SessionBindings } from "@espalier/routing";

/** What one router sees of caches and of load, and how it tells others of its own decisions. */
export interface RouterView extends Startable {
  readonly knowledge: PrefixKnowledge;
  /** What other routers have in flight, by the index of a target. */
  readonly sharedLoad: SharedLoad;
  readonly sessions: SessionBindings;
  /** What other routers have served to tenants. */
  readonly usage: FleetUsage;
  /** Begins to watch what engines have in memory. To be called once at most. */
  watchMemory(): MemoryWatch;
  /** Where routers tell each other what they have learned; undefined where they do not. */
  readonly notes: NoteChannel | undefined;
  /** Shares targets out among routers; see `SharedTier`. */
  isOwn(target: TargetIndex): boolean;
  /** The router's own load of a target has changed. */
  loadChanged(target: RoutingTarget): void;
  /** It will end: others take over what it does for all. */
  setDraining(): void;
  /** Whether it knows what every engine that runs has told. */
  readonly isSettled: boolean;
  /** What it waits for before it should be used. */
  readonly waitingFor: readonly string[];
}
