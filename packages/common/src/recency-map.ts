interface Entry<Key, Value> {
  readonly key: Key;
  value: Value;
  older: Entry<Key, Value> | undefined;
  newer: Entry<Key, Value> | undefined;
}

/**
 * A map in the order in which its entries were last set or used. A plain `Map` keeps an order as well, but it leaves a hole
 * where an entry was: to find the oldest one it walks over all holes before it, which with 60,000 entries of which the
 * oldest always goes takes 80 us each time (V8 11.3).
 */
export class RecencyMap<Key, Value> {
  readonly #entries = new Map<Key, Entry<Key, Value>>();
  #oldest: Entry<Key, Value> | undefined;
  #newest: Entry<Key, Value> | undefined;

  get size(): number {
    return this.#entries.size;
  }

  /** The value, whose place in the order stays what it is. */
  get(key: Key): Value | undefined {
    return this.#entries.get(key)?.value;
  }

  /** The value, which is the newest from now on. */
  use(key: Key): Value | undefined {
    const entry = this.#entries.get(key);
    if (entry && entry !== this.#newest) {
      this.#unlink(entry);
      this.#append(entry);
    }
    return entry?.value;
  }

  /** The newest entry from now on, whether it is new or not. */
  set(key: Key, value: Value): void {
    const known = this.#entries.get(key);
    if (known) {
      known.value = value;
      this.use(key);
      return;
    }
    const entry = { key, value, older: undefined, newer: undefined };
    this.#entries.set(key, entry);
    this.#append(entry);
  }

  /** @returns whether it was there */
  delete(key: Key): boolean {
    const entry = this.#entries.get(key);
    if (!entry) return false;
    this.#entries.delete(key);
    this.#unlink(entry);
    return true;
  }

  clear(): void {
    this.#entries.clear();
    this.#oldest = undefined;
    this.#newest = undefined;
  }

  /** What was set or used longest ago; undefined when the map is empty. */
  oldest(): readonly [key: Key, value: Value] | undefined {
    return this.#oldest && [this.#oldest.key, this.#oldest.value];
  }

  /** Takes out what was set or used longest ago. */
  deleteOldest(): void {
    if (this.#oldest) this.delete(this.#oldest.key);
  }

  /** The oldest first. Of a map that is being walked only the value in hand may be deleted. */
  *values(): Generator<Value, void, undefined> {
    // An entry that is taken out keeps its neighbour.
    for (let entry = this.#oldest; entry; entry = entry.newer) yield entry.value;
  }

  #append(entry: Entry<Key, Value>): void {
    entry.older = this.#newest;
    entry.newer = undefined;
    if (this.#newest) this.#newest.newer = entry;
    else this.#oldest = entry;
    this.#newest = entry;
  }

  #unlink({ older, newer }: Entry<Key, Value>): void {
    if (older) older.newer = newer;
    else this.#oldest = newer;
    if (newer) newer.older = older;
    else this.#newest = older;
  }
}
