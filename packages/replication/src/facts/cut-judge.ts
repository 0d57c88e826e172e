import type { RouterId } from "@espalier/common";
import { outranks, type StatedCut } from "./cut-board.ts";

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
