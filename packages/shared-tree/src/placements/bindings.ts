import { BinaryHeap, type Clock, type Hash64, hashOf, LiveCounts, type RouterId } from "@espalier/core";
import type { HybridClock, Origin } from "@espalier/mesh";
import { type BindingRecord, maxBindingTtlMs, maxBindingValueBytes } from "./placement-item.ts";

export interface BindingEntry {
  readonly record: BindingRecord;
  readonly router: RouterId;
  /** On the monotonic clock. */
  readonly expiresMs: number;
  /**
   * Entries with the lowest rank go first for lack of capacity: the stamp, or less if it is by a clock that runs ahead.
   */
  readonly rank: number;
}

/** With no capacity left, expired entries are looked for this often, in milliseconds. */
const sweepPeriodMs = 1_000;

interface Held extends BindingEntry {
  readonly key: string;
  readonly value: string;
}

/**
 * The newest bindings by stamp. While no stamp is ahead of time and nothing has expired, its content depends only on
 * the set of records it was given, not on their order: it also refuses a record older than one that went for lack of
 * capacity.
 */
export class BindingTable {
  readonly #capacity: number;
  readonly #entries = new Map<string, Held>();
  /** A heap, the oldest first; entries that were replaced stay in it until they surface, or there are too many. */
  readonly #heap = new BinaryHeap<Held>((one, other) => ranksAbove(other, one));
  readonly #bound = new LiveCounts();
  /** The newest entry that went for lack of capacity. */
  #floor: Held | undefined;
  #sweptMs = Number.NEGATIVE_INFINITY;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: Hash64): BindingEntry | undefined {
    return this.#entries.get(mapKeyOf(key));
  }

  /** Keys that are bound to a value. */
  count(value: string, nowMs: number): number {
    return this.#bound.of(value, nowMs);
  }

  put(entry: BindingEntry, nowMs: number): void {
    const { key, kind, value } = entry.record;
    const held = { ...entry, key: mapKeyOf(key), value };
    const known = this.#entries.get(held.key);
    if (known && !isLater(held, known)) return;
    if (this.#floor && !ranksAbove(held, this.#floor)) return;
    if (known) this.#bound.remove(known);
    if (kind === "bind") this.#bound.add(held);
    this.#entries.set(held.key, held);
    this.#heap.push(held);
    if (this.#entries.size > this.#capacity) this.#dropExpired(nowMs);
    while (this.#entries.size > this.#capacity) this.#dropOldest();
    if (this.#heap.size > 2 * this.#capacity + 64) this.#heap.reset(this.#entries.values());
  }

  #dropExpired(nowMs: number): void {
    if (nowMs - this.#sweptMs < sweepPeriodMs) return;
    this.#sweptMs = nowMs;
    for (const [key, { expiresMs }] of this.#entries) if (expiresMs <= nowMs) this.#entries.delete(key);
  }

  #dropOldest(): void {
    const oldest = this.#heap.pop()!;
    if (this.#entries.get(oldest.key) !== oldest) return;
    this.#entries.delete(oldest.key);
    this.#bound.remove(oldest);
    this.#floor = oldest;
  }
}

/** The hash of a key as the key of a map. */
function mapKeyOf({ low, high }: Hash64): string {
  return `${high.toString(36)}.${low.toString(36)}`;
}

function ranksAbove(one: BindingEntry, other: BindingEntry): boolean {
  return one.rank !== other.rank ? one.rank > other.rank : isLater(one, other);
}

function isLater(one: BindingEntry, other: BindingEntry): boolean {
  if (one.record.stamp !== other.record.stamp) return one.record.stamp > other.record.stamp;
  return one.router > other.router;
}

/** Bindings that are kept: those with the latest stamps. */
const maxBindings = 100_000;

export interface BindingsOptions {
  /** This epoch of this router. */
  readonly self: () => Origin;
  readonly clock: Clock;
  readonly hlc: HybridClock;
  /** Called when something waits to be written. */
  readonly touch: () => void;
  /** Default: 100,000. */
  readonly capacity?: number;
}

const encoder = new TextEncoder();

/**
 * Texts bound to texts, the same in all routers, such as which engine holds a stored response. Of two bindings of a key
 * the later stamp wins; of equal stamps the greater router id.
 */
export type Bindings = ReturnType<typeof createBindings>;

export function createBindings({ self, clock, hlc, touch, capacity = maxBindings }: BindingsOptions) {
  const table = new BindingTable(capacity);
  /** By key: only the latest record of a key is sent. */
  const pending = new Map<string, BindingRecord>();
  const put = (record: BindingRecord, router: RouterId, rank: number): void => {
    const nowMs = clock.nowMs();
    table.put({ record, router, expiresMs: nowMs + record.ttlMs, rank }, nowMs);
  };
  const write = (record: BindingRecord): void => {
    // Its stamp may have to outrank one that is far ahead.
    put(record, self().router, Math.min(record.stamp, hlc.now()));
    const key = mapKeyOf(record.key);
    pending.delete(key);
    pending.set(key, record);
    if (pending.size > capacity) pending.delete(firstKey(pending));
    touch();
  };
  const find = (text: string): BindingEntry | undefined => {
    const entry = table.get(hashOf(text));
    return entry?.record.kind === "bind" && entry.expiresMs > clock.nowMs() ? entry : undefined;
  };
  return {
    /** Number of bindings, forgotten and expired ones included. */
    get size(): number {
      return table.size;
    },
    /** @throws RangeError for a value over 1,024 bytes */
    set(text: string, value: string, ttlMs: number): void {
      if (encoder.encode(value).length > maxBindingValueBytes) throw new RangeError("a value is too long to be bound");
      const key = hashOf(text);
      const stamp = laterThan(table.get(key)?.record.stamp, hlc);
      write({ kind: "bind", stamp, ttlMs: wholeTtl(ttlMs), key, value });
    },
    get: (text: string): string | undefined => find(text)?.record.value,
    /** Texts that are bound to a value, by any router. */
    count: (value: string): number => table.count(value, clock.nowMs()),
    /** Milliseconds for which a key stays bound unless it is set again; 0 when it is unbound. */
    leftMs(text: string): number {
      const entry = find(text);
      return entry ? entry.expiresMs - clock.nowMs() : 0;
    },
    forget(text: string): void {
      const entry = find(text);
      if (!entry) return;
      // It must be remembered as forgotten while any router may still hear of the binding.
      const { stamp, ttlMs, key } = entry.record;
      write({ kind: "unbind", stamp: laterThan(stamp, hlc), ttlMs, key, value: "" });
    },
    /** What was set and forgotten here since the last call, for the placement log. */
    takePending(): readonly BindingRecord[] {
      const records = [...pending.values()];
      pending.clear();
      return records;
    },
    /**
     * Takes a record from another router's log.
     *
     * @returns false when its stamp is by a clock that runs ahead: it wins, but for lack of capacity it goes as if made
     *   now
     */
    receive(record: BindingRecord, router: RouterId): boolean {
      const isCredible = hlc.observe(record.stamp);
      put(record, router, isCredible ? record.stamp : hlc.now());
      return isCredible;
    },
  };
}

/** A stamp that outranks the known one, even if that was by a wrong clock. */
function laterThan(stamp: number | undefined, hlc: HybridClock): number {
  return Math.max(hlc.now(), (stamp ?? 0) + 1);
}

function wholeTtl(ttlMs: number): number {
  return Math.max(0, Math.min(Math.ceil(ttlMs), maxBindingTtlMs));
}

function firstKey(map: ReadonlyMap<string, unknown>): string {
  for (const key of map.keys()) return key;
  return "";
}
