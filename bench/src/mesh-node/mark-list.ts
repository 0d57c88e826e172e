/** Maximum marks of one kind that a node keeps between two resets; later ones are dropped. */
export const maxMarks = 50_000;

/** When numbered events happened. */
export class MarkList {
  #marks: [number, number][] = [];

  add(number: number, atMs: number): void {
    if (this.#marks.length < maxMarks) this.#marks.push([number, atMs]);
  }

  get all(): readonly (readonly [number, number])[] {
    return this.#marks;
  }

  reset(): void {
    this.#marks = [];
  }
}

/** Lists of other routers' events, by router. */
export class MarksByRouter {
  readonly #lists = new Map<string, MarkList>();

  of(router: string): MarkList {
    const list = this.#lists.get(router) ?? new MarkList();
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
