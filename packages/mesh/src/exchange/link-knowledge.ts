import type { Clock, RouterId } from "@espalier/common";

/** How long an answer is kept. What changes meanwhile is made up by vectors. */
const keptMs = 50;

/** Remembers for a moment who has links to whom, because it is asked for every change and every peer. */
export class LinkKnowledge {
  readonly #clock: Clock;
  readonly #linksOf: (router: RouterId) => ReadonlySet<RouterId>;
  readonly #known = new Map<RouterId, ReadonlySet<RouterId>>();
  #askedAtMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, linksOf: (router: RouterId) => ReadonlySet<RouterId>) {
    this.#clock = clock;
    this.#linksOf = linksOf;
  }

  hears(router: RouterId, other: RouterId): boolean {
    const nowMs = this.#clock.nowMs();
    if (nowMs - this.#askedAtMs >= keptMs) {
      this.#known.clear();
      this.#askedAtMs = nowMs;
    }
    let links = this.#known.get(router);
    if (links === undefined) {
      links = this.#linksOf(router);
      this.#known.set(router, links);
    }
    return links.has(other);
  }
}
