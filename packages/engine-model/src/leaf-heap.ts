/** Something that can be evicted, with its place in the heap. */
export interface HeapEntry {
  /** Logical time of the last access. */
  accessed: number;
  /** Index in the heap, -1 outside. The heap's own. */
  heapIndex: number;
}

/** A binary heap, oldest access first, whose entries know their places and can be taken out. */
export interface LeafHeap<Entry extends HeapEntry> {
  add(entry: Entry): void;
  remove(entry: Entry): void;
  /** The one that was not accessed for longest. */
  oldest(): Entry | undefined;
  /** Finds the new place of an entry whose access time grew. */
  touched(entry: Entry): void;
  clear(): void;
}

export function createLeafHeap<Entry extends HeapEntry>(): LeafHeap<Entry> {
  const heap: Entry[] = [];

  const put = (entry: Entry, at: number): void => {
    heap[at] = entry;
    entry.heapIndex = at;
  };
  const up = (entry: Entry, from: number): void => {
    let at = from;
    while (at > 0) {
      const parent = heap[(at - 1) >> 1]!;
      if (parent.accessed <= entry.accessed) break;
      put(parent, at);
      at = (at - 1) >> 1;
    }
    put(entry, at);
  };
  const down = (entry: Entry, from: number): void => {
    let at = from;
    for (let child = 2 * at + 1; child < heap.length; child = 2 * at + 1) {
      const right = heap[child + 1];
      if (right && right.accessed < heap[child]!.accessed) child++;
      if (heap[child]!.accessed >= entry.accessed) break;
      put(heap[child]!, at);
      at = child;
    }
    put(entry, at);
  };
  return {
    add(entry) {
      heap.push(entry);
      up(entry, heap.length - 1);
    },
    remove(entry) {
      const at = entry.heapIndex;
      const last = heap.pop()!;
      entry.heapIndex = -1;
      if (last === entry) return;
      down(last, at);
      up(last, last.heapIndex);
    },
    oldest: () => heap[0],
    touched: (entry) => down(entry, entry.heapIndex),
    clear() {
      for (const entry of heap) entry.heapIndex = -1;
      heap.length = 0;
    },
  };
}
