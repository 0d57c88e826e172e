import type { RouterId } from "@espalier/core";
import type { Origin } from "./origin.ts";
import type { ReplicatedDocuments } from "./replicated-documents.ts";
import type { LoadExchange, PlaneExchange } from "./rows/plane-exchange.ts";

/** A statement about a settled target that another replica can compare with its own. */
export interface FoldStatement {
  readonly target: string;
  readonly epoch: string;
  readonly sequence: number;
  readonly isComplete: boolean;
  readonly blocks: number;
  readonly digest: readonly [number, number];
}

/** A snapshot of facts that another replica asked for. */
interface SnapshotSource {
  /**
   * @param targets undefined for all
   * @param to the router that asks. What it asks for by name it lacks itself, whatever it has stated before
   */
  exportFrames(maxBytes: number, targets?: readonly string[], to?: Origin): Generator<Uint8Array, void, undefined>;
}

/** Takes a snapshot, frame by frame. */
export interface SnapshotSink {
  /** @throws RangeError for bytes that are no frame; the import is aborted then */
  frame(bytes: Uint8Array): void;
  /** @returns targets that have their state now */
  end(): readonly string[];
  /** The targets that it would have brought still wait. */
  abort(): void;
}

/** Asks for the state of targets. */
export interface SnapshotRequest {
  /** Undefined for all targets, as a router does that joins. */
  readonly targets: readonly string[] | undefined;
  /** The origin that is known to have it. */
  readonly from: Origin | undefined;
}

/**
 * A replica as a backend sees it: what must reach every other replica, and what arrives from them. A mesh of sockets
 * and Redis are two such backends.
 */
export interface ReplicaPorts {
  /** This epoch of this router. It changes when `renewEpoch` is called. */
  readonly origin: Origin;
  readonly documents: ReplicatedDocuments;
  readonly load: LoadExchange;
  readonly notes: PlaneExchange;
  readonly snapshots: SnapshotSource & {
    beginImport(): SnapshotSink;
    /** Calls the listener with states that the replica lacks and has not asked for yet. */
    onRequest(listener: (request: SnapshotRequest) => void): () => void;
    /** No peer has it: the replica continues without. */
    unavailable(request: SnapshotRequest): void;
  };
  /** Statements about targets that this replica's reader is responsible for, for others to compare now and then. */
  statements(): readonly FoldStatement[];
  compareStatement(statement: FoldStatement, from: Origin): void;
  /** The router's highest known epoch. */
  highestEpoch(router: RouterId): number;
  /** A peer knew a later epoch of this router than the present one: begins one that is later still. */
  renewEpoch(above: number): void;
}

/** Another router, as a backend sees it. */
export interface Member {
  readonly origin: Origin;
  /**
   * `alive`; `suspect`: silent, or its link broke; `down`: considered dead, others have its feeds now; `left`: said
   * goodbye. A member that is down for long is forgotten.
   */
  readonly state: "alive" | "suspect" | "down" | "left";
  /** It takes no new work, so it should own no feeds. */
  readonly isDraining: boolean;
  /** Whether this router has a link of its own to it. */
  readonly isLinked: boolean;
  /** Targets whose event sockets it cannot reach. */
  readonly unreachable: readonly string[];
  /** Its region; empty if it has not been heard yet, undefined if it says none. */
  readonly region?: string | undefined;
}
