import type { Cancel, Startable } from "@espalier/common";
import type { Member } from "@espalier/replication";

/** Carries a replica's journals, gauges and snapshots to the other replicas and back. Sockets or Redis. */
export interface Backend extends Startable {
  readonly kind: "mesh" | "redis";
  members(): readonly Member[];
  onMembers(listener: () => void): Cancel;
  /** Why the replica should not be used yet: what it waits for; empty once it has all that its peers have. */
  readonly waitingFor: readonly string[];
  setDraining(isDraining: boolean): void;
  /** Says which targets' event sockets this router cannot reach. */
  setUnreachable(targets: readonly string[]): void;
  /** Says goodbye, so that others take over at once. `stop` follows. */
  leave(): Promise<void>;
  /** What waits to be sent to other routers, in all. */
  readonly bufferedBytes: number;
  /** Plain JSON for operators. */
  describe(): BackendDescription;
}

export interface BackendDescription {
  readonly kind: "mesh" | "redis";
  /** Where peers can reach this router; null for Redis. */
  readonly address: string | null;
  readonly members: readonly MemberDescription[];
  readonly waitingFor: readonly string[];
}

export interface MemberDescription {
  readonly router: string;
  readonly epoch: number;
  readonly state: Member["state"];
  readonly isDraining: boolean;
  readonly address: string | null;
  readonly isLinked: boolean;
  readonly roundTripMs: number | null;
  /** How long the latest changes of it took to arrive, by its own clock and this router's; null where not known. */
  readonly lagMs: number | null;
  readonly sentBytes: number;
  readonly receivedBytes: number;
  readonly sentBytesPerS: number;
  readonly receivedBytesPerS: number;
  readonly bufferedBytes: number;
}
