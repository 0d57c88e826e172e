import type { PrefixIndex } from "@espalier/prefix-index";
import { ChangeLog } from "./change-log.ts";
import type { FoldPoint } from "./fold-point.ts";

/**
 * What a target held before a gap, to fold again from when the gap is filled: not as a copy, for which the whole index
 * would have to be searched, but as what has changed since. Keeping it costs nothing at the gap, and going back costs what
 * has changed.
 *
 * Changes are noted as the index saw them, so that going back is exact whatever records are folded then. Applying
 * the records of a refold on top of a later state would not do: better ones need not touch every block that the worse
 * ones have touched.
 */
export class KeptState {
  readonly point: FoldPoint;
  readonly changes = new ChangeLog();
  /** Whether the target may have had holes, of which the index does not tell how deep those were that are closed. */
  readonly #hadHoles: boolean;
  #areHolesLost = false;
  #isVoid = false;

  /** @param hadHoles whether the target may have holes, or is walked block by block */
  constructor(point: FoldPoint, hadHoles: boolean) {
    this.point = point;
    this.#hadHoles = hadHoles;
  }

  get byteLength(): number {
    return this.changes.byteLength;
  }

  /**
   * Whether everything was dropped since, and nobody knows what it was. A refold begins with nothing then: it comes by
   * the message that drops everything again, so that what was held before does not matter.
   */
  get isVoid(): boolean {
    return this.#isVoid;
  }

  /** The holes of the state: none, those that the index has now save blocks that were held, or not known. */
  get holes(): "none" | "same" | "unknown" {
    if (!this.#hadHoles) return "none";
    return this.#areHolesLost || this.changes.hasStoredOnGpu ? "unknown" : "same";
  }

  /** A hole was closed without its block being stored. */
  holeGone(): void {
    this.#areHolesLost = true;
  }

  /** The target was cleared: what has changed before is of no use, and what changes from now on neither. */
  void(): void {
    this.#isVoid = true;
    this.changes.clear();
  }

  /** Brings the index back to the state. The target is to be folded again from `point` on before anybody looks at it. */
  restore(index: PrefixIndex, slot: number): void {
    if (this.#isVoid) index.clearFacts(slot);
    else {
      const { holes } = this;
      this.changes.undo(index, slot);
      if (holes === "unknown") index.importFacts(slot, { kind: "walked" });
    }
  }
}
