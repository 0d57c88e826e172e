import type { Hash64 } from "@espalier/prefix-index";

/** What a record can be; its place in this list stands for it on the wire and in digests. */
export const recordKinds = ["place", "confirm", "refute", "bind", "unbind"] as const;
/** Blocks of one chain; longer ones are cut. */
export const maxRunBlocks = 65_536;
/** A record that lives for longer is shortened to this. */
export const maxPlacementTtlMs = 3_600_000;
/** A binding that lives for longer is shortened to this. */
export const maxBindingTtlMs = 86_400_000;
/** UTF-8 bytes of what a key is bound to. */
export const maxBindingValueBytes = 1_024;

/** A chain of blocks: all of it, or what it has beyond the first blocks of an earlier run of the same journal. */
export interface ChainRun {
  /** The number by which later records refer to it; undefined where it has no blocks of its own. */
  readonly number: number | undefined;
  readonly parent: number | undefined;
  /** Blocks of the parent that it begins with. */
  readonly shared: number;
  /** The chain hashes that follow, two words each. */
  readonly words: Uint32Array;
}

/** A chain was sent to a target, or (`confirm`) its engine said that it has it, or (`refute`) turned out not to. */
export interface PlacementRecord {
  readonly kind: "place" | "confirm" | "refute";
  /** The target and its life, as the journal declares. */
  readonly feed: number;
  /** Of a hybrid clock. */
  readonly stamp: number;
  /** How long it counts from when it is read. A `refute` works at once: it cuts the chain before its last block. */
  readonly ttlMs: number;
  readonly run: ChainRun;
}

/** A key is bound to a value, or to nothing. */
export interface BindingRecord {
  readonly kind: "bind" | "unbind";
  readonly stamp: number;
  readonly ttlMs: number;
  /** Hash of the key. */
  readonly key: Hash64;
  /** Empty for `unbind`. */
  readonly value: string;
}

export type LogRecord = PlacementRecord | BindingRecord;
