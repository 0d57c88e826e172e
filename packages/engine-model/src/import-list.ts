/** Something that waits for what comes from outside. */
interface Importing {
  /** When it is here, in milliseconds. */
  readonly readyMs: number;
}

/** Those that wait for what comes from outside, the earliest first, then in order of arrival. */
export interface ImportList<Entry extends Importing> {
  readonly size: () => number;
  add(entry: Entry): void;
  /** Takes out the first one that is ready by `nowMs`. */
  takeReady(nowMs: number): Entry | undefined;
  /** When the first one is ready; undefined when there is none. */
  nextMs(): number | undefined;
  drop(entry: Entry): void;
}

/** Every entry holds blocks, or is one of the requests that the engine holds: that bounds the list. */
export function createImportList<Entry extends Importing>(): ImportList<Entry> {
  const entries: Entry[] = [];
  return {
    size: () => entries.length,
    add(entry) {
      let at = entries.length;
      while (at > 0 && entries[at - 1]!.readyMs > entry.readyMs) at--;
      entries.splice(at, 0, entry);
    },
    takeReady(nowMs) {
      const [first] = entries;
      return first && first.readyMs <= nowMs ? entries.shift() : undefined;
    },
    nextMs: () => entries[0]?.readyMs,
    drop(entry) {
      const at = entries.indexOf(entry);
      if (at >= 0) entries.splice(at, 1);
    },
  };
}
