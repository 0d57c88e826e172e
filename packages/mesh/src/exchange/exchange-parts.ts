import { counterBy, counterOf, type Meter, type RouterId, secondsOf } from "@espalier/core";
import type { ProcessPorts } from "../link/link.ts";
import type { Origin } from "../origin.ts";
import type { ReplicatedDocuments } from "../replicated-documents.ts";
import type { Channel } from "../wire/link-frames.ts";

/** Bounds and periods of the exchange over a link. */
export type ExchangeLimits = Readonly<typeof defaultExchangeLimits>;

export const defaultExchangeLimits = {
  /** Bytes of bulk frames that one link may have in progress before the other end grants more. */
  bulkCreditBytes: 256 * 1024,
  /** Bytes of content in one bulk frame; longer messages are cut into several. */
  bulkFrameBytes: 64 * 1024 - 64,
  /** Bytes of one message of a snapshot, of which a replica makes none smaller than 64 KiB: two full frames. */
  snapshotMessageBytes: 2 * (64 * 1024 - 64),
  /** A receiver refuses a longer bulk message. */
  maxBulkMessageBytes: 4 * 1024 * 1024 + 1024,
  /** How long bulk answers may be computed in one turn of the event loop. */
  bulkTurnMs: 4,
  /** Answers that may wait on one link; further requests get `busy`. */
  maxAnswersPerLink: 32,
  /** Longer changes are not sent as they happen: the peer learns of the new version, and asks for it in pieces. */
  maxLiveUpdateBytes: 256 * 1024,
  /** Numbers of documents that each end of a link may assign. */
  maxDocumentNumbers: 4096,
  /** Documents that this router may know it lacks something of. */
  maxLackingDocuments: 4096,
  /** Diffs that this router asks of one peer at a time. */
  maxFetchesPerLink: 8,
  /** Names of abandoned documents that are remembered, so that they are not asked for again. */
  maxRefusedDocuments: 4096,
  /** Bytes of changes that arrived before those they follow on, per document and in all. */
  maxHeldBytesPerDocument: 512 * 1024,
  maxHeldBytes: 4 * 1024 * 1024,
  /** Requests for snapshots that wait. */
  maxSnapshotRequests: 4096,
  /** Targets named in one request for a snapshot. */
  maxTargetsPerRequest: 512,
  /** Statements compared per round. */
  maxStatements: 4096,
  /** Nothing came for so long: the request is abandoned, and another peer is asked. */
  answerTimeoutMs: 5000,
  retryFirstMs: 100,
  retryMaxMs: 5000,
  /** How often peers get the versions that they have not heard of. */
  vectorPeriodMs: 1000,
  /** How often they get everything again, against faults that were not foreseen. */
  wholeVectorPeriodMs: 10_000,
  statementPeriodMs: 5000,
  /** How often a statement that has not changed is repeated. */
  statementRepeatMs: 60_000,
};

/** Kinds of traffic that are counted per link. */
export type ExchangeKind =
  | "update"
  | "relay"
  | "vector"
  | "want"
  | "piece"
  | "snapshot"
  | "load"
  | "statement"
  | "note";

/** `vector`: a peer advertised more. `gap`: a change arrived whose predecessor did not. */
export type ResyncReason = "vector" | "gap" | "retry";

const lagBucketsSeconds = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Metrics of the exchange. */
export type ExchangeMeter = ReturnType<typeof createExchangeMeter>;

export function createExchangeMeter(meter: Meter) {
  return {
    sent: counterBy<ExchangeKind>(
      meter,
      "kind",
      "espalier_mesh_exchange_bytes_total",
      "Bytes sent on links, by content.",
    ),
    dropped: counterBy<ExchangeKind>(
      meter,
      "kind",
      "espalier_mesh_exchange_dropped_frames_total",
      "Frames dropped because a link's queue was full; a diff or a full frame replaces them.",
    ),
    /** A diff was asked for. */
    resync: counterBy<ResyncReason>(
      meter,
      "reason",
      "espalier_mesh_resyncs_total",
      "Document diffs requested from peers, by trigger.",
    ),
    refused: counterOf(
      meter,
      "espalier_mesh_refused_updates_total",
      "Document updates rejected for lack of write permission; their links were closed.",
    ),
    invalid: counterBy<Channel>(
      meter,
      "channel",
      "espalier_mesh_invalid_frames_total",
      "Malformed frames; their links were closed.",
    ),
    /** Time from a change's commit by its writer to its arrival here. */
    lag: secondsOf(
      meter,
      lagBucketsSeconds,
      "espalier_mesh_replication_lag_seconds",
      "Replication lag from the commit of a change to its arrival, by both routers' wall clocks, in seconds.",
    ),
    compared: counterBy<"sent" | "received">(
      meter,
      "direction",
      "espalier_mesh_digests_total",
      "Digests of settled targets, sent to peers and compared with theirs.",
    ),
    snapshot: counterBy<"imported" | "served" | "failed" | "unavailable">(
      meter,
      "outcome",
      "espalier_mesh_snapshots_total",
      "Snapshots of facts, by outcome.",
    ),
  };
}

/** What the exchange asks of membership. */
export interface MeshPeers {
  readonly self: Origin;
  /** Whether a router is known to have a link to another one, and so hears it without a relay. Unknown counts as no. */
  hears(router: RouterId, other: RouterId): boolean;
  /** The known epoch of another router; undefined for an unknown router. */
  epochOf(router: RouterId): number | undefined;
}

/** What the parts of an exchange are made of. */
export interface ExchangeParts extends Omit<ProcessPorts, "meter"> {
  readonly documents: ReplicatedDocuments;
  readonly peers: MeshPeers;
  readonly limits: ExchangeLimits;
  readonly meter: ExchangeMeter;
}
