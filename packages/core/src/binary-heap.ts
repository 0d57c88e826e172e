/** A priority queue as a binary heap. Push and pop take logarithmic time. */
export class BinaryHeap<Item> {
  readonly #isBefore: (one: Item, other: Item) => boolean;
  #items: Item[] = [];

  /** @param isBefore whether an item comes out before another one */
  constructor(isBefore: (one: Item, other: Item) => boolean) {
    this.#isBefore = isBefore;
  }

  get size(): number {
    return this.#items.length;
  }

  get first(): Item | undefined {
    return this.#items[0];
  }

  push(item: Item): void {
    const items = this.#items;
    let at = items.push(item) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#isBefore(item, items[parent]!)) break;
      items[at] = items[parent]!;
      at = parent;
    }
    items[at] = item;
  }

  pop(): Item | undefined {
    const [first] = this.#items;
    const last = this.#items.pop();
    if (this.#items.length > 0) this.#sink(last!, 0);
    return first;
  }

  /** Keeps only these items, in linear time. */
  reset(items: Iterable<Item>): void {
    this.#items = [...items];
    for (let at = (this.#items.length >> 1) - 1; at >= 0; at--) this.#sink(this.#items[at]!, at);
  }

  [Symbol.iterator](): Iterator<Item> {
    return this.#items.values();
  }

  /** Sifts an item down from the free place `from`. */
  #sink(item: Item, from: number): void {
    const items = this.#items;
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && this.#isBefore(items[child + 1]!, items[child]!)) child += 1;
      if (!this.#isBefore(items[child]!, item)) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = item;
  }
}
