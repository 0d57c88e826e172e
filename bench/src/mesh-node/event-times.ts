/** Maximum times of one kind that a node keeps between two resets; later ones are dropped. */
export const maxEventTimes = 50_000;

/** When numbered events happened. */
export class EventTimes {
  #times: [number, number][] = [];

  add(number: number, atMs: number): void {
    if (this.#times.length < maxEventTimes) this.#times.push([number, atMs]);
  }

  get all(): readonly (readonly [number, number])[] {
    return this.#times;
  }

  reset(): void {
    this.#times = [];
  }
}

/** Lists of other routers' events, by router. */
export class EventTimesByRouter {
  readonly #lists = new Map<string, EventTimes>();

  of(router: string): EventTimes {
    const list = this.#lists.get(router) ?? new EventTimes();
    this.#lists.set(router, list);
    return list;
  }

  toJson(): Record<string, readonly (readonly [number, number])[]> {
    return Object.fromEntries([...this.#lists].map(([router, list]) => [router, list.all]));
  }

  reset(): void {
    this.#lists.clear();
  }
}
