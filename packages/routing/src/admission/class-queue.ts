import { usageHalfLifeMs } from "@espalier/core";
import type { AdmissionRequest } from "./admission-request.ts";
import type { FleetUsage } from "./fair-share.ts";
import { ServedTokens } from "./fair-share.ts";
import type { ClassRule, ClassSettings } from "./settings.ts";

/** A queued request. */
export interface Entry {
  readonly request: AdmissionRequest;
  /** Counts up in order of arrival. */
  readonly sequence: number;
  /** By the clock. */
  readonly arrivedMs: number;
  /** When its first token is due, by the clock; Infinity for none. */
  readonly dueMs: number;
  /** When it has to leave the queue to meet that, or has waited for an engine long enough. */
  readonly leaveByMs: number;
  /** Estimated prompt tokens that an engine will have to compute. */
  readonly uncachedTokens: number;
}

/** `edf` treats a request without a deadline as due this long after arrival. */
const usualDueMs = 30_000;
/**
 * Milliseconds by which each uncached prompt token delays a request's nominal arrival. Agents whose context is cached pass new
 * ones, and short prompts pass long ones, but not forever: 10,000 tokens wait at most 50 s longer than one token. Found in
 * simulation: `docs/decisions/0054-progress-goes-first.md`.
 */
const agePerTokenMs = 5;

/** Sort key within a class and tenant: the least goes first. It never changes, so no request is overtaken forever. */
function orderKey({ order }: Pick<ClassSettings, "order">, entry: Entry): number {
  const { arrivedMs, dueMs, uncachedTokens } = entry;
  if (order === "edf") return Math.min(dueMs, arrivedMs + usualDueMs);
  return order === "shortest_prefill" ? arrivedMs + agePerTokenMs * uncachedTokens : arrivedMs;
}

/** Progress of one scan over a class: by tenant, the index of the entry to try next. */
export type ScanState = Map<string, number>;

/** The queued requests of one class, by tenant and in order. */
export class ClassQueue<Waiting extends Entry> {
  readonly settings: ClassSettings;
  /** Tokens that the class has served, by tenant. */
  readonly served: ServedTokens;
  readonly #fleet: FleetUsage;
  readonly #byTenant = new Map<string, Waiting[]>();
  count = 0;
  /** Of all entries, as estimated. */
  uncachedTokens = 0;
  /** A lower bound of the earliest time by which an entry has to leave. */
  leaveByMs = Number.POSITIVE_INFINITY;

  constructor(settings: ClassSettings, fleet: FleetUsage) {
    this.settings = settings;
    this.#fleet = fleet;
    this.served = new ServedTokens(usageHalfLifeMs, {
      of: (tenant) => fleet.elsewhere(settings.name, tenant),
      neediest: () => fleet.neediest(settings.name),
      lifted: (tenant, tokens) => fleet.lifted(settings.name, tenant, tokens),
    });
  }

  add(entry: Waiting, nowMs: number): void {
    const { tenant } = entry.request;
    const entries = this.#byTenant.get(tenant);
    if (entries) insert(entries, entry, this.settings);
    else {
      this.served.arrived(tenant, this.#byTenant.keys(), nowMs);
      this.#byTenant.set(tenant, [entry]);
    }
    if (!entries || entries[0] === entry) this.#fleet.waits(this.settings.name, tenant, this.keyOf(entry));
    this.count += 1;
    this.uncachedTokens += entry.uncachedTokens;
    this.leaveByMs = Math.min(this.leaveByMs, entry.leaveByMs);
  }

  remove(entry: Waiting): void {
    const { tenant } = entry.request;
    const entries = this.#byTenant.get(tenant);
    const at = entries ? entries.indexOf(entry) : -1;
    if (!entries || at < 0) return;
    entries.splice(at, 1);
    const [first] = entries;
    if (!first) this.#byTenant.delete(tenant);
    if (at === 0) this.#fleet.waits(this.settings.name, tenant, first && this.keyOf(first));
    this.count -= 1;
    this.uncachedTokens -= entry.uncachedTokens;
    if (this.count === 0) {
      this.uncachedTokens = 0;
      this.leaveByMs = Number.POSITIVE_INFINITY;
    }
  }

  /** Where an entry stands in the order of its tenant's requests, over all routers: the least goes first. */
  keyOf(entry: Waiting): number {
    return orderKey(this.settings, entry);
  }

  /** The next request to try: that of the least served tenant among those with entries that `scan` has not seen. */
  next(scan: ScanState, nowMs: number): Waiting | undefined {
    let chosen: Waiting | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const [tenant, entries] of this.#byTenant) {
      const entry = entries[scan.get(tenant) ?? 0];
      if (!entry) continue;
      const virtualTokens = this.#byTenant.size === 1 ? 0 : this.served.virtualTokens(tenant, nowMs);
      if (virtualTokens > least || (virtualTokens === least && chosen && chosen.sequence < entry.sequence)) continue;
      chosen = entry;
      least = virtualTokens;
    }
    return chosen;
  }

  /** All entries, the latest arrival first. */
  *latestFirst(): Iterable<Waiting> {
    yield* [...this.entries()].sort(byLatest);
  }

  /** Entries of whichever tenant has the most left, its latest first, until none has two more than `other`. */
  *overShareOf(other: string): Iterable<Waiting> {
    const least = (this.#byTenant.get(other)?.length ?? 0) + 1;
    const busy = [...this.#byTenant].filter(([tenant, { length }]) => tenant !== other && length > least);
    const left = busy.map(([, entries]) => entries.toSorted(byLatest).reverse());
    for (;;) {
      let busiest: Waiting[] | undefined;
      for (const entries of left) if (entries.length > (busiest?.length ?? least)) busiest = entries;
      const latest = busiest?.pop();
      if (!latest) return;
      yield latest;
    }
  }

  /** Entries whose time to leave has passed. Looks at all of them only when there may be one. */
  overdue(nowMs: number): readonly Waiting[] {
    if (this.leaveByMs > nowMs) return [];
    const overdue: Waiting[] = [];
    this.leaveByMs = Number.POSITIVE_INFINITY;
    for (const entry of this.entries()) {
      if (entry.leaveByMs <= nowMs) overdue.push(entry);
      else this.leaveByMs = Math.min(this.leaveByMs, entry.leaveByMs);
    }
    return overdue;
  }

  *entries(): Iterable<Waiting> {
    for (const entries of this.#byTenant.values()) yield* entries;
  }
}

const byLatest = (one: Entry, other: Entry): number => other.sequence - one.sequence;

/** Inserts in order; entries with equal keys keep their order of arrival. */
function insert<Waiting extends Entry>(entries: Waiting[], entry: Waiting, settings: ClassSettings): void {
  const key = orderKey(settings, entry);
  let from = 0;
  let to = entries.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    const other = entries[middle]!;
    const otherKey = orderKey(settings, other);
    if (otherKey < key || (otherKey === key && other.sequence < entry.sequence)) from = middle + 1;
    else to = middle;
  }
  entries.splice(from, 0, entry);
}

/** Replaces a share of 0 under `deficit`: the class gets almost only what no other class uses. */
const leastWeight = 1e-3;

/** Decides which class goes next. */
export class DeficitScheduler<Waiting extends Entry> {
  readonly #rule: ClassRule;
  readonly #queues: readonly ClassQueue<Waiting>[];
  readonly #served = new ServedTokens(usageHalfLifeMs);

  /** @param queues the highest class first */
  constructor(rule: ClassRule, queues: readonly ClassQueue<Waiting>[]) {
    this.#rule = rule;
    this.#queues = queues;
  }

  /** Charges a class for served tokens; under `deficit` divided by its weight. */
  charge({ settings }: ClassQueue<Waiting>, tokens: number, nowMs: number): void {
    const { name, share } = settings;
    this.#served.charge(name, this.#rule === "strict" ? tokens : tokens / Math.max(leastWeight, share), nowMs);
  }

  /** The queue of a class is no longer empty. It does not catch up on what others were served before. */
  arrived({ settings }: ClassQueue<Waiting>, nowMs: number): void {
    if (this.#rule === "strict") {
      const { name, share } = settings;
      const others = this.#total(nowMs) - this.#served.virtualTokens(name, nowMs);
      if (share < 1) this.#served.lift(name, (others * share) / (1 - share), nowMs);
      return;
    }
    const waiting = this.#queues.filter(({ count }) => count > 0).map((queue) => queue.settings.name);
    this.#served.arrived(settings.name, waiting, nowMs);
  }

  /** @param canGo whether a request of the class may be dispatched now */
  next(canGo: (queue: ClassQueue<Waiting>) => boolean, nowMs: number): ClassQueue<Waiting> | undefined {
    return this.#rule === "strict" ? this.#nextStrict(canGo, nowMs) : this.#nextByDeficit(canGo, nowMs);
  }

  /** The class furthest below its guaranteed share; else the highest. */
  #nextStrict(canGo: (queue: ClassQueue<Waiting>) => boolean, nowMs: number): ClassQueue<Waiting> | undefined {
    let highest: ClassQueue<Waiting> | undefined;
    let poorest: ClassQueue<Waiting> | undefined;
    let leastRatio = 1;
    const total = this.#total(nowMs);
    for (const queue of this.#queues) {
      if (queue.count === 0 || !canGo(queue)) continue;
      highest ??= queue;
      const { name, share } = queue.settings;
      if (share === 0 || total === 0) continue;
      const ratio = this.#served.virtualTokens(name, nowMs) / (total * share);
      if (ratio < leastRatio) {
        leastRatio = ratio;
        poorest = queue;
      }
    }
    return poorest ?? highest;
  }

  #nextByDeficit(canGo: (queue: ClassQueue<Waiting>) => boolean, nowMs: number): ClassQueue<Waiting> | undefined {
    let chosen: ClassQueue<Waiting> | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const queue of this.#queues) {
      if (queue.count === 0 || !canGo(queue)) continue;
      const virtualTokens = this.#served.virtualTokens(queue.settings.name, nowMs);
      if (virtualTokens < least) {
        least = virtualTokens;
        chosen = queue;
      }
    }
    return chosen;
  }

  #total(nowMs: number): number {
    let total = 0;
    for (const { settings } of this.#queues) total += this.#served.virtualTokens(settings.name, nowMs);
    return total;
  }
}
