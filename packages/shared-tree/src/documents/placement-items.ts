import { BinaryHeap } from "@espalier/core";
import { itemOverheadBytes } from "./journal-document.ts";

interface PlacementItem {
  readonly number: number;
  /** Bytes that count towards the capacity. */
  readonly byteLength: number;
  /** Empty once it is committed or abandoned. */
  bytes: Uint8Array;
  /** Bytes of all items before it. */
  readonly startBytes: number;
  clock: number | undefined;
  untilMs: number;
  isDoomed: boolean;
}

/** An item is about to go when it is older than the newest seven eighths of the capacity. */
const safeShare = 7 / 8;
/** Heap entries of items that went early are swept when they outnumber the others by more than this. */
const minSweepEntries = 64;
const noBytes = new Uint8Array();

/**
 * Tracks which items of the own placement log are needed: those that have not expired, and of these the newest when the
 * capacity is too small for all.
 */
export class PlacementItems {
  readonly #maxBytes: number;
  /** In the order of their numbers. */
  readonly #items = new Map<number, PlacementItem>();
  /** Heap by the expiry that an item had when it was added; it may have been kept longer since. */
  readonly #heap = new BinaryHeap<{ readonly atMs: number; readonly item: PlacementItem }>(
    (one, other) => one.atMs < other.atMs,
  );
  readonly #deletable: PlacementItem[] = [];
  #pending: PlacementItem[] = [];
  #nextNumber = 1;
  #writtenBytes = 0;
  #heldBytes = 0;
  #deletableBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get items(): number {
    return this.#items.size;
  }

  /** The number of the item that was added last; 0 before any. */
  get newest(): number {
    return this.#nextNumber - 1;
  }

  /** The number of the oldest item that is needed; undefined when none is. */
  get oldest(): number | undefined {
    for (const number of this.#items.keys()) return number;
    return undefined;
  }

  get deletableBytes(): number {
    return this.#deletableBytes;
  }

  get deletableItems(): number {
    return this.#deletable.length;
  }

  get hasPending(): boolean {
    return this.#pending.length > 0;
  }

  add(bytes: Uint8Array, expiresMs: number): number {
    const number = this.#nextNumber++;
    const startBytes = this.#writtenBytes;
    const byteLength = bytes.length + itemOverheadBytes;
    const item: PlacementItem = {
      number,
      byteLength,
      bytes,
      startBytes,
      clock: undefined,
      untilMs: expiresMs,
      isDoomed: false,
    };
    this.#writtenBytes += byteLength;
    this.#heldBytes += byteLength;
    this.#items.set(number, item);
    this.#pending.push(item);
    this.#toHeap(item);
    for (const oldest of this.#items.values()) {
      if (this.#heldBytes <= this.#maxBytes) break;
      this.#doom(oldest);
    }
    this.#sweepHeap();
    return number;
  }

  keep(number: number, untilMs: number): void {
    const item = this.#items.get(number);
    if (item !== undefined && untilMs > item.untilMs) item.untilMs = untilMs;
  }

  holds(number: number, nowMs: number): boolean {
    const item = this.#items.get(number);
    if (item === undefined || item.untilMs <= nowMs) return false;
    return this.#writtenBytes - item.startBytes <= this.#maxBytes * safeShare;
  }

  /** Takes the items to add, without those that expired before they were added. */
  takePending(): readonly { readonly bytes: Uint8Array; committed(clock: number): void }[] {
    const taken = this.#pending.filter((item) => !item.isDoomed);
    this.#pending = [];
    return taken.map((item) => ({
      bytes: item.bytes,
      committed: (clock: number) => {
        item.clock = clock;
        item.bytes = noBytes;
        if (item.isDoomed) this.#toDelete(item);
      },
    }));
  }

  /** Gives up items that have expired. */
  expire(nowMs: number): void {
    for (let first = this.#heap.first; first !== undefined && first.atMs <= nowMs; first = this.#heap.first) {
      this.#heap.pop();
      const { item } = first;
      if (item.isDoomed) continue;
      if (item.untilMs > nowMs) this.#toHeap(item);
      else this.#doom(item);
    }
  }

  /** Clocks of items to delete; the call takes them. */
  takeDeletable(): readonly number[] {
    this.#deletableBytes = 0;
    return this.#deletable.splice(0).map(({ clock }) => clock!);
  }

  #doom(item: PlacementItem): void {
    item.isDoomed = true;
    this.#items.delete(item.number);
    this.#heldBytes -= item.byteLength;
    item.bytes = noBytes;
    if (item.clock !== undefined) this.#toDelete(item);
  }

  #toDelete(item: PlacementItem): void {
    this.#deletable.push(item);
    this.#deletableBytes += item.byteLength;
  }

  #sweepHeap(): void {
    if (this.#heap.size <= 2 * this.#items.size + minSweepEntries) return;
    this.#heap.reset(Array.from(this.#items.values(), (item) => ({ atMs: item.untilMs, item })));
  }

  #toHeap(item: PlacementItem): void {
    this.#heap.push({ atMs: item.untilMs, item });
  }
}
