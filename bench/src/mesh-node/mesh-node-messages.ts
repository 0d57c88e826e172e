/** What a node of a measured mesh is told when it starts, as its one argument in JSON. */
export interface MeshNodeOptions {
  readonly routerId: string;
  /** `host:port` of other nodes. */
  readonly seeds: readonly string[];
  /** Keys of the targets whose feeds this node reads; no other node may read them. */
  readonly targets: readonly string[];
  /** Blocks that each of them holds once filled; `fill` brings them there. */
  readonly blocksPerTarget: number;
  /** Blocks stored and removed a second, over all targets, between `start` and `stop`. */
  readonly ratePerS: number;
  /** Records a second by which other nodes tell when a change is visible to them. */
  readonly probesPerS: number;
  /** Changes a second of a load gauge. */
  readonly gaugesPerS: number;
  readonly seed: number;
}

/** `[number, milliseconds since the Unix epoch]`: probes and gauges of a node are counted from 0. */
export type Marked = readonly (readonly [number, number])[];

export interface TargetDigest {
  readonly target: string;
  readonly life: string;
  readonly sequence: number;
  readonly blocks: number;
  readonly digest: readonly [number, number];
}

export interface MeshNodeStats {
  /** Since the last `reset`, except what says otherwise. */
  readonly elapsedMs: number;
  readonly cpuMs: number;
  /** Blocks stored and removed by the own feeds, and messages that told of them. */
  readonly ops: number;
  readonly messages: number;
  /** Operations that were due and not made, because the node was too busy. */
  readonly skippedOps: number;
  readonly stallMs: number;
  readonly busyStallMs: number;
  /** Over all links, frames of all kinds. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
  readonly probesSent: Marked;
  readonly gaugesSent: Marked;
  /** When those of other nodes became visible here, by router; a gauge that was overtaken counts with the later one. */
  readonly probesSeen: Readonly<Record<string, Marked>>;
  readonly gaugesSeen: Readonly<Record<string, Marked>>;
  /** Now. */
  readonly blocks: number;
  readonly indexBytes: number;
  readonly journalBytes: number;
  readonly foldBytes: number;
  readonly residentBytes: number;
}

export interface MeshNodeReadiness {
  readonly waitingFor: readonly string[];
  /** From the start of the mesh until it waited for nothing any more; null before that. */
  readonly readyMs: number | null;
  /** Pairs of block and target in the index when it became ready; null before that. */
  readonly readyBlocks: number | null;
  /** Other routers that live. */
  readonly members: number;
  /** Pairs of block and target now. */
  readonly blocks: number;
}

/** What a node can be asked, and what it answers. */
export interface MeshNodeAnswers {
  /** Fills the targets; answered when they are full. */
  readonly fill: { readonly blocks: number };
  /** Begins to change blocks and gauges. */
  readonly start: Record<string, never>;
  readonly stop: Record<string, never>;
  /** Targets that are settled here, in the order of their keys. */
  readonly digest: { readonly targets: readonly TargetDigest[] };
  readonly stats: MeshNodeStats;
  /** Counts anew. */
  readonly reset: Record<string, never>;
  readonly ready: MeshNodeReadiness;
  /** Says goodbye to the others and ends. */
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
