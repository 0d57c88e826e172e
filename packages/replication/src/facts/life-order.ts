import { type BatchMark, type Life, lifeId } from "./life.ts";

/** Lives of one target that are remembered: of more, those go that others have followed for longest. */
export const maxLivesPerTarget = 64;
/** Predecessors of one life: its reader names every one that is dated later. */
const maxPredecessors = maxLivesPerTarget;

/** A life that was declared, the same object whoever declared it. */
export interface KnownLife {
  readonly id: string;
  readonly mark: BatchMark;
  /** As it is declared to others: the same object until its predecessor becomes known. */
  life: Life;
  /** In the order in which they were named. */
  readonly predecessors: string[];
  /** Whether anything was said of it that is not kept, because another life was newer then or became so. */
  hasMissed: boolean;
}

/**
 * The lives of a target, and which of them is the newest: among those that no other one names as its predecessor, the one
 * with the latest mark. It depends on the set of what was declared only, not on the order.
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

  /** Ids of lives that are dated later than this one and do not follow it, so that it counts only when it follows them. */
  outranking(mark: BatchMark): readonly string[] {
    const followers = this.#followersOf(lifeId(mark));
    const others = [...this.#lives.values()].filter((life) => isLater(life.mark, mark) && !followers.has(life.id));
    return others.map(({ id }) => id);
  }

  /** Lives that name this one, those that name them, and so on. */
  #followersOf(id: string): ReadonlySet<string> {
    const found = new Set([id]);
    for (const follower of found) {
      for (const life of this.#lives.values()) if (life.predecessors.includes(follower)) found.add(life.id);
    }
    return found;
  }

  /** Lives that no other one names. Where every one is named, as no honest router would do, all of them. */
  #heads(): Iterable<KnownLife> {
    const named = new Set<string>();
    for (const { predecessors } of this.#lives.values()) for (const id of predecessors) named.add(id);
    const heads = [...this.#lives.values()].filter(({ id }) => !named.has(id));
    return heads.length > 0 ? heads : this.#lives.values();
  }

  /**
   * Over the bound, one goes whose predecessors are gone, the first that was declared: who names a life that is still known
   * has to stay, or that one would count again. Where lives name each other in a circle, any but the newest.
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
