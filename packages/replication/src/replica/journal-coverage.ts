import type { FeedDeclaration } from "../documents/journal.ts";
import type { FactEntry } from "../facts/fact-entry.ts";
import { lifeId } from "../facts/life.ts";
import { type Origin, originKey } from "../origin.ts";

/** What one journal says about one target, in the newest life that it mentions. */
interface Extent {
  readonly life: string;
  /** What told of the life last: where it has not changed, the life has not either. */
  declaration: FeedDeclaration;
  /** The last record. */
  sequence: number;
  /** The last cut; -1 without one. */
  cut: number;
}

/**
 * How far journals reach, to tell when that of a dead router is not needed any more: when for each of its targets a
 * living router has made a cut at or beyond its last record, or the target has a newer life.
 */
export class JournalCoverage {
  readonly #extents = new Map<string, Map<string, Extent>>();

  note(
    origin: Origin,
    entries: readonly FactEntry[],
    declarationOf: (feed: number) => FeedDeclaration | undefined,
  ): void {
    const key = originKey(origin);
    let extents = this.#extents.get(key);
    if (!extents) {
      extents = new Map();
      this.#extents.set(key, extents);
    }
    for (const entry of entries) {
      const declaration = declarationOf(entry.feed);
      if (!declaration?.life) continue;
      let extent = extents.get(declaration.target);
      if (extent?.declaration !== declaration) {
        const life = lifeId(declaration.life);
        if (extent?.life === life) extent.declaration = declaration;
        else {
          extent = { life, declaration, sequence: -1, cut: -1 };
          extents.set(declaration.target, extent);
        }
      }
      if (entry.kind === "record") extent.sequence = Math.max(extent.sequence, entry.sequence);
      else if (entry.kind === "cut") {
        extent.cut = Math.max(extent.cut, entry.sequence);
        extent.sequence = Math.max(extent.sequence, entry.sequence);
      }
    }
  }

  forget(origin: Origin): void {
    this.#extents.delete(originKey(origin));
  }

  /** Nobody has the target any more. */
  forgetTarget(target: string): void {
    for (const extents of this.#extents.values()) extents.delete(target);
  }

  /**
   * @param living whose cuts count
   * @param currentLife id of a target's newest life
   */
  isCovered(origin: Origin, living: readonly Origin[], currentLife: (target: string) => string | undefined): boolean {
    for (const [target, { life, sequence }] of this.#extents.get(originKey(origin)) ?? []) {
      if (sequence < 0 || currentLife(target) !== life) continue;
      const isCut = living.some((other) => {
        const extent = this.#extents.get(originKey(other))?.get(target);
        return extent?.life === life && extent.cut >= sequence;
      });
      if (!isCut) return false;
    }
    return true;
  }
}
