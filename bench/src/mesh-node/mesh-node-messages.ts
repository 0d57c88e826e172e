/** Options of a node in a measured mesh, passed as its only argument in JSON. */
export interface MeshNodeOptions {
  readonly routerId: string;
  /** `host:port` of other nodes. */
  readonly seeds: readonly string[];
  /** Redis that carries the mesh; absent for direct links. */
  readonly redisUrl?: string;
  /** Keys of the targets whose feeds this node reads; no other node may read them. */
  readonly targets: readonly string[];
  /** Blocks in each of these targets once `fill` is done. */
  readonly blocksPerTarget: number;
  /** Blocks stored and removed per second, over all targets, between `start` and `stop`. */
  readonly ratePerS: number;
  /** Records per second that show other nodes when a change becomes visible to them. */
  readonly probesPerS: number;
  /** Load gauge changes per second. */
  readonly gaugesPerS: number;
  readonly seed: number;
}

/** `[number, milliseconds since the Unix epoch]`. Probes and gauges of a node are numbered from 0. */
export type NumberedTimes = readonly (readonly [number, number])[];

export interface TargetDigest {
  readonly target: string;
  readonly epoch: string;
  readonly sequence: number;
  readonly blocks: number;
  readonly digest: readonly [number, number];
}

export interface MeshNodeStats {
  /** Since the last `reset`, unless stated otherwise. */
  readonly elapsedMs: number;
  readonly cpuMs: number;
  /** Blocks stored and removed by the node's own feeds, and the messages that reported them. */
  readonly ops: number;
  readonly messages: number;
  /** Operations that were due but not made because the node was too busy. */
  readonly skippedOps: number;
  readonly stallMs: number;
  readonly busyStallMs: number;
  /** Over all links, for frames of all kinds. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
  readonly probesSent: NumberedTimes;
  readonly gaugesSent: NumberedTimes;
  /** When those of other nodes became visible here, by router; a gauge that was overtaken counts with the later one. */
  readonly probesSeen: Readonly<Record<string, NumberedTimes>>;
  readonly gaugesSeen: Readonly<Record<string, NumberedTimes>>;
  /** At the time of the reply. */
  readonly blocks: number;
  readonly indexBytes: number;
  readonly journalBytes: number;
  readonly foldBytes: number;
  readonly residentBytes: number;
}

export interface MeshNodeReadiness {
  readonly waitingFor: readonly string[];
  /** From the start of the mesh until nothing was missing; null before that. */
  readonly readyMs: number | null;
  /** Pairs of block and target in the index when it became ready; null before that. */
  readonly readyBlocks: number | null;
  /** Other live routers. */
  readonly members: number;
  /** Pairs of block and target now. */
  readonly blocks: number;
}

/** Requests to a node, and their replies. */
export interface MeshNodeAnswers {
  /** Fills the targets; answered when they are full. */
  readonly fill: { readonly blocks: number };
  /** Starts changing blocks and gauges. */
  readonly start: Record<string, never>;
  readonly stop: Record<string, never>;
  /** Targets that are settled here, in the order of their keys. */
  readonly digest: { readonly targets: readonly TargetDigest[] };
  readonly stats: MeshNodeStats;
  /** Resets the counters. */
  readonly reset: Record<string, never>;
  readonly ready: MeshNodeReadiness;
  /** Announces its departure to the others and exits. */
  readonly leave: Record<string, never>;
}

export type MeshNodeCommand = keyof MeshNodeAnswers;

export interface MeshNodeRequest {
  readonly id: number;
  readonly type: MeshNodeCommand;
}

export type MeshNodeReply =
  | { readonly id: number; readonly type: "answer"; readonly answer: unknown }
  | { readonly id: number; readonly type: "failed"; readonly message: string };

/** The first message of a node. */
export interface MeshNodeListening {
  readonly type: "listening";
  readonly address: string;
}

export const meshNodeCommands: readonly MeshNodeCommand[] = [
  "fill",
  "start",
  "stop",
  "digest",
  "stats",
  "reset",
  "ready",
  "leave",
];
