import { crc32 } from "node:zlib";

/** Identifies one message of an engine among all epochs of all engines. */
export interface BatchMark {
  readonly sequence: number;
  /** The engine's clock when it published, in whole microseconds since the Unix epoch; -1 when it does not say. */
  readonly timestampUs: number;
  /** CRC-32 of the payload. */
  readonly checksum: number;
}

/** One run of an engine's process, named by its earliest known message. */
export interface Life extends BatchMark {
  /** Id of the epoch before it, if the router that named it knew one. */
  readonly predecessor: string | null;
}

/** Equal in all routers that name an epoch by the same message. */
export function lifeId({ sequence, timestampUs, checksum }: BatchMark): string {
  return `${sequence}.${timestampUs}.${checksum.toString(16)}`;
}

/**
 * The epoch of an engine that was restarted and has published nothing yet: it ends the one before, and holds nothing.
 * All routers that find it name it alike. It is dated like the epoch before, so that the first message names a later
 * one.
 */
export function unreadLifeAfter(before: Life): Life {
  const predecessor = lifeId(before);
  return { sequence: 0, timestampUs: before.timestampUs, checksum: crc32(predecessor), predecessor };
}

/** Whether an epoch was announced before its first message. */
export function isUnread({ sequence, checksum, predecessor }: Life): boolean {
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
export function startOf(life: BatchMark): FoldPoint {
  return { position: life.sequence - 1, last: undefined, incompleteFrom: never };
}

/** Epochs of one target that are remembered. Beyond the bound the ones that were followed first are forgotten. */
export const maxLivesPerTarget = 64;
/** Predecessors of one epoch: its reader names every one that is dated later. */
const maxPredecessors = maxLivesPerTarget;

/** A declared epoch; one object for all routers that declare it. */
export interface KnownLife {
  readonly id: string;
  readonly mark: BatchMark;
  /** The epoch as declared to others: the same object until its predecessor becomes known. */
  life: Life;
  /** In the order in which they were named. */
  readonly predecessors: string[];
  /** Whether something about it was not kept, because another epoch was newer then or became so. */
  hasMissed: boolean;
}

/**
 * The epochs of a target, and which of them is the newest: of those that no other one names as its predecessor, the one
 * with the latest mark. The result depends on the set of declarations only, not on their order.
 */
export class LifeOrder {
  readonly #lives = new Map<string, KnownLife>();
  #newest: KnownLife | undefined;

  get newest(): KnownLife | undefined {
    return this.#newest;
  }

  get size(): number {
    return this.#lives.size;
  }

  declare(life: Life): KnownLife {
    const id = lifeId(life);
    let known = this.#lives.get(id);
    if (!known) {
      const { sequence, timestampUs, checksum } = life;
      const mark = { sequence, timestampUs, checksum };
      known = { id, mark, life: { ...mark, predecessor: null }, predecessors: [], hasMissed: false };
      this.#lives.set(id, known);
    } else if (life.predecessor === null || known.predecessors.includes(life.predecessor)) return known;
    const { predecessor } = life;
    if (predecessor !== null && predecessor !== id && known.predecessors.length < maxPredecessors) {
      known.predecessors.push(predecessor);
      if (known.life.predecessor === null) known.life = { ...known.mark, predecessor };
    }
    this.#newest = latest(this.#heads());
    this.#forgetOne();
    return known;
  }

  /** Ids of epochs that are dated later than this one and do not follow it. This one counts only if it follows them. */
  outranking(mark: BatchMark): readonly string[] {
    const followers = this.#followersOf(lifeId(mark));
    const others = [...this.#lives.values()].filter((life) => isLater(life.mark, mark) && !followers.has(life.id));
    return others.map(({ id }) => id);
  }

  /** Epochs that name this one, those that name them, and so on. */
  #followersOf(id: string): ReadonlySet<string> {
    const found = new Set([id]);
    for (const follower of found) {
      for (const life of this.#lives.values()) if (life.predecessors.includes(follower)) found.add(life.id);
    }
    return found;
  }

  /** Epochs that no other one names. If every one is named, which no honest router would do, all of them. */
  #heads(): Iterable<KnownLife> {
    const named = new Set<string>();
    for (const { predecessors } of this.#lives.values()) for (const id of predecessors) named.add(id);
    const heads = [...this.#lives.values()].filter(({ id }) => !named.has(id));
    return heads.length > 0 ? heads : this.#lives.values();
  }

  /**
   * Over the bound, forgets the first declared epoch whose predecessors are gone. An epoch that names a remembered one
   * must stay, or the named one would count again. If epochs name each other in a circle, it forgets any but the
   * newest.
   */
  #forgetOne(): void {
    if (this.#lives.size <= maxLivesPerTarget) return;
    const others = [...this.#lives.values()].filter((life) => life !== this.#newest);
    const first = others.find(({ predecessors }) => !predecessors.some((id) => this.#lives.has(id)));
    const going = first ?? others[0];
    if (going) this.#lives.delete(going.id);
  }
}

function latest(lives: Iterable<KnownLife>): KnownLife | undefined {
  let found: KnownLife | undefined;
  for (const life of lives) if (!found || isLater(life.mark, found.mark)) found = life;
  return found;
}

function isLater(one: BatchMark, other: BatchMark): boolean {
  if (one.timestampUs !== other.timestampUs) return one.timestampUs > other.timestampUs;
  if (one.sequence !== other.sequence) return one.sequence > other.sequence;
  return one.checksum > other.checksum;
}
