import type { SimFleet } from "@espalier/simulator";
import { liveRouters } from "./live-router.ts";

/** Messages that an engine may send while its state is exported: one or two, for states as small as these. */
const exportedMessages = 8;

/**
 * States that came by a snapshot. It is read while it changes, so it may hold some of what the next few records bring, and
 * is exact only once these are applied.
 */
export class FuzzyStates {
  /** Up to which message, by router, its epoch, and engine. */
  readonly #until = new Map<string, number>();

  /** A router has taken a snapshot, of some engines at least. */
  imported(fleet: SimFleet, router: number): void {
    for (const { number, epoch, view } of liveRouters(fleet)) {
      if (number !== router) continue;
      for (const { key, number: engine } of fleet.engines) {
        const last = view.tier.replica.fold.state(key)?.last;
        if (last) this.#until.set(`${router} ${epoch} ${engine}`, last.sequence + exportedMessages);
      }
    }
  }

  has(place: { readonly router: number; readonly epoch: number; readonly engine: number }, sequence: number): boolean {
    const { router, epoch, engine } = place;
    return sequence < (this.#until.get(`${router} ${epoch} ${engine}`) ?? -1);
  }
}
