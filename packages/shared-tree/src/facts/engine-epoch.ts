import { crc32 } from "node:zlib";

/** Identifies one message of an engine among all epochs of all engines. */
export interface BatchMark {
  readonly sequence: number;
  /** The engine's clock when it published, in whole microseconds since the Unix epoch; -1 when it does not say. */
  readonly timestampUs: number;
  /** CRC-32 of the payload. */
  readonly checksum: number;
}

/** The mark alone of what has one. */
export function markOf({ sequence, timestampUs, checksum }: BatchMark): BatchMark {
  return { sequence, timestampUs, checksum };
}

/** One run of an engine's process, named by its earliest known message. */
export interface EngineEpoch extends BatchMark {
  /** Id of the epoch before it, if the router that named it knew one. */
  readonly predecessor: string | null;
}

/** Equal in all routers that name an epoch by the same message. */
export function epochId({ sequence, timestampUs, checksum }: BatchMark): string {
  return `${sequence}.${timestampUs}.${checksum.toString(16)}`;
}

/**
 * The epoch of an engine that was restarted and has published nothing yet: it ends the one before, and holds nothing.
 * All routers that find it name it alike. It is dated like the epoch before, so that the first message names a later
 * one.
 */
export function unreadEpochAfter(before: EngineEpoch): EngineEpoch {
  const predecessor = epochId(before);
  return { sequence: 0, timestampUs: before.timestampUs, checksum: crc32(predecessor), predecessor };
}

/** Whether an epoch was announced before its first message. */
export function isUnread({ sequence, checksum, predecessor }: EngineEpoch): boolean {
  return sequence === 0 && predecessor !== null && checksum === crc32(predecessor);
}

/** How far a target is folded. */
export interface FoldPoint {
  /** Every message up to this one is applied, or was skipped. */
  readonly position: number;
  /** The latest applied message. */
  readonly last: BatchMark | undefined;
  /** Sequence of the first message that may be missing or incomplete in the state; `never` for a complete state. */
  readonly incompleteFrom: number;
}

/** `incompleteFrom` of a state that includes every message up to its position. */
export const never = Number.MAX_SAFE_INTEGER;

/** Where an epoch begins: the target holds nothing before its first message. */
export function startOf(epoch: BatchMark): FoldPoint {
  return { position: epoch.sequence - 1, last: undefined, incompleteFrom: never };
}

/** Epochs of one target that are remembered. Beyond the bound the ones that were followed first are forgotten. */
export const maxEpochsPerTarget = 64;
/** Predecessors of one epoch: its reader names every one that is dated later. */
const maxPredecessors = maxEpochsPerTarget;

/** A declared epoch; one object for all routers that declare it. */
export interface KnownEpoch {
  readonly id: string;
  readonly mark: BatchMark;
  /** The epoch as declared to others: the same object until its predecessor becomes known. */
  epoch: EngineEpoch;
  /** In the order in which they were named. */
  readonly predecessors: string[];
  /** Whether something about it was not kept, because another epoch was newer then or became so. */
  hasMissed: boolean;
}

/**
 * The epochs of a target, and which of them is the newest: of those that no other one names as its predecessor, the one
 * with the latest mark. The result depends on the set of declarations only, not on their order.
 */
export class EpochOrder {
  readonly #epochs = new Map<string, KnownEpoch>();
  #newest: KnownEpoch | undefined;

  get newest(): KnownEpoch | undefined {
    return this.#newest;
  }

  get size(): number {
    return this.#epochs.size;
  }

  declare(epoch: EngineEpoch): KnownEpoch {
    const id = epochId(epoch);
    let known = this.#epochs.get(id);
    if (!known) {
      const mark = markOf(epoch);
      known = { id, mark, epoch: { ...mark, predecessor: null }, predecessors: [], hasMissed: false };
      this.#epochs.set(id, known);
    } else if (epoch.predecessor === null || known.predecessors.includes(epoch.predecessor)) return known;
    const { predecessor } = epoch;
    if (predecessor !== null && predecessor !== id && known.predecessors.length < maxPredecessors) {
      known.predecessors.push(predecessor);
      if (known.epoch.predecessor === null) known.epoch = { ...known.mark, predecessor };
    }
    this.#newest = latest(this.#heads());
    this.#forgetOne();
    return known;
  }

  /** Ids of epochs that are dated later than this one and do not follow it. This one counts only if it follows them. */
  outranking(mark: BatchMark): readonly string[] {
    const followers = this.#followersOf(epochId(mark));
    const others = [...this.#epochs.values()].filter((epoch) => isLater(epoch.mark, mark) && !followers.has(epoch.id));
    return others.map(({ id }) => id);
  }

  /** Epochs that name this one, those that name them, and so on. */
  #followersOf(id: string): ReadonlySet<string> {
    const found = new Set([id]);
    for (const follower of found) {
      for (const epoch of this.#epochs.values()) if (epoch.predecessors.includes(follower)) found.add(epoch.id);
    }
    return found;
  }

  /** Epochs that no other one names. If every one is named, which no honest router would do, all of them. */
  #heads(): Iterable<KnownEpoch> {
    const named = new Set<string>();
    for (const { predecessors } of this.#epochs.values()) for (const id of predecessors) named.add(id);
    const heads = [...this.#epochs.values()].filter(({ id }) => !named.has(id));
    return heads.length > 0 ? heads : this.#epochs.values();
  }

  /**
   * Over the bound, forgets the first declared epoch whose predecessors are gone. An epoch that names a remembered one
   * must stay, or the named one would count again. If epochs name each other in a circle, it forgets any but the
   * newest.
   */
  #forgetOne(): void {
    if (this.#epochs.size <= maxEpochsPerTarget) return;
    const others = [...this.#epochs.values()].filter((epoch) => epoch !== this.#newest);
    const first = others.find(({ predecessors }) => !predecessors.some((id) => this.#epochs.has(id)));
    const going = first ?? others[0];
    if (going) this.#epochs.delete(going.id);
  }
}

function latest(epochs: Iterable<KnownEpoch>): KnownEpoch | undefined {
  let found: KnownEpoch | undefined;
  for (const epoch of epochs) if (!found || isLater(epoch.mark, found.mark)) found = epoch;
  return found;
}

function isLater(one: BatchMark, other: BatchMark): boolean {
  if (one.timestampUs !== other.timestampUs) return one.timestampUs > other.timestampUs;
  if (one.sequence !== other.sequence) return one.sequence > other.sequence;
  return one.checksum > other.checksum;
}
