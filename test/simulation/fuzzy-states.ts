import type { SimFleet } from "@espalier/simulator";
import { liveRouters } from "./live-router.ts";

/** Messages that an engine may send while its state is exported: one or two, for states as small as these. */
const exportedMessages = 8;

/**
 * States that came by a snapshot. It is read while it changes, so it may hold some of what the next few records bring, and
 * is exact only once these are applied.
 */
export class FuzzyStates {
  /** Up to which message, by router, its life, and engine. */
  readonly #until = new Map<string, number>();

  /** A router has taken a snapshot, of some engines at least. */
  imported(fleet: SimFleet, router: number): void {
    for (const { number, life, view } of liveRouters(fleet)) {
      if (number !== router) continue;
      for (const { key, number: engine } of fleet.engines) {
        const last = view.tier.replica.fold.state(key)?.last;
        if (last) this.#until.set(`${router} ${life} ${engine}`, last.sequence + exportedMessages);
      }
    }
  }

  has(place: { readonly router: number; readonly life: number; readonly engine: number }, sequence: number): boolean {
    const { router, life, engine } = place;
    return sequence < (this.#until.get(`${router} ${life} ${engine}`) ?? -1);
  }
}
