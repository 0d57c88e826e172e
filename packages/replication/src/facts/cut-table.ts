import type { RouterId } from "@espalier/common";
import type { Origin } from "../origin.ts";
import type { CutEntry } from "./fact-item.ts";

/** Cuts of one target beyond what is folded; of more, the highest are the ones that matter. */
export const maxWaitingCuts = 16;

/** A cut, and who states it. */
export interface StatedCut {
  readonly cut: CutEntry;
  readonly origin: Origin;
}

/** Complete cuts first, then those of the lowest router; of one router the later one. */
function outranks(one: StatedCut, other: StatedCut): boolean {
  if (one.cut.isComplete !== other.cut.isComplete) return one.cut.isComplete;
  return one.origin.router < other.origin.router;
}

/** Cuts that a target has not reached, by sequence, the best one for each. */
export class CutTable {
  #cuts: StatedCut[] = [];

  get count(): number {
    return this.#cuts.length;
  }

  get highest(): StatedCut | undefined {
    return this.#cuts.at(-1);
  }

  add(stated: StatedCut): void {
    const { sequence } = stated.cut;
    const at = this.#cuts.findIndex(({ cut }) => cut.sequence >= sequence);
    const known = at < 0 ? undefined : this.#cuts[at];
    if (known?.cut.sequence === sequence) {
      if (!outranks(known, stated)) this.#cuts[at] = stated;
    } else {
      this.#cuts.splice(at < 0 ? this.#cuts.length : at, 0, stated);
      if (this.#cuts.length > maxWaitingCuts) this.#cuts.shift();
    }
  }

  /** Takes the cut at this sequence. */
  take(sequence: number): StatedCut | undefined {
    const at = this.#cuts.findIndex(({ cut }) => cut.sequence === sequence);
    return at < 0 ? undefined : this.#cuts.splice(at, 1)[0];
  }

  /** Whether there is a cut from `from` to `to`, inclusive. */
  hasWithin(from: number, to: number): boolean {
    return this.#cuts.some(({ cut }) => from <= cut.sequence && cut.sequence <= to);
  }

  dropThrough(sequence: number): void {
    if (this.#cuts.length > 0) this.#cuts = this.#cuts.filter(({ cut }) => cut.sequence > sequence);
  }

  clear(): void {
    this.#cuts = [];
  }
}

/** `settles`: the state is what the cut says. `outranked`: it is not, and is better. `replaces`: the cut is. */
export type CutVerdict = "settles" | "outranked" | "replaces";

/** Weighs what cuts say of a target's state against the state, and against what earlier cuts said. */
export class CutJudge {
  readonly #self: RouterId;
  /** The best of the latest cuts that agreed with the state. */
  #settledBy: StatedCut | undefined;
  /** Sequence of the latest outranked cut since one agreed; -1 for none. */
  #outrankedAt = -1;

  constructor(self: RouterId) {
    this.#self = self;
  }

  /** Another state is to be judged. */
  reset(): void {
    this.#settledBy = undefined;
    this.#outrankedAt = -1;
  }

  /** @param state as it is at the sequence of the cut */
  judge(stated: StatedCut, state: { readonly agrees: boolean; readonly isComplete: boolean }): CutVerdict {
    const { cut, origin } = stated;
    const settled = this.#settledBy?.cut.sequence === cut.sequence ? this.#settledBy : undefined;
    if (state.agrees) {
      if (!settled || !outranks(settled, stated)) this.#settledBy = stated;
      this.#outrankedAt = -1;
      return "settles";
    }
    if (origin.router === this.#self) return "outranked";
    const isOutranked = (state.isComplete && !cut.isComplete) || (settled !== undefined && outranks(settled, stated));
    // A writer that never learns better would stay apart for ever, so its second word counts.
    const isRepeated = this.#outrankedAt >= 0 && cut.sequence > this.#outrankedAt;
    if (!isOutranked || isRepeated) return "replaces";
    this.#outrankedAt = cut.sequence;
    return "outranked";
  }
}
