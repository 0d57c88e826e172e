import { usageHalfLifeMs } from "@espalier/common";
import { type Entry, orderKey } from "./entry.ts";
import type { FleetUsage } from "./fleet-usage.ts";
import { ServedTokens } from "./served-tokens.ts";
import type { ClassSettings } from "./settings.ts";

/** How far one scan has come in a class: by tenant, the place of the entry to try next. */
export type ScanState = Map<string, number>;

/** The requests of one class that wait, by tenant and in order. */
export class ClassQueue<Waiting extends Entry> {
  readonly settings: ClassSettings;
  /** Whom the class has served how much. */
  readonly served: ServedTokens;
  readonly #fleet: FleetUsage;
  readonly #byTenant = new Map<string, Waiting[]>();
  count = 0;
  /** Of all entries, as estimated. */
  uncachedTokens = 0;
  /** The earliest moment by which one of them has to leave, or earlier. */
  leaveByMs = Number.POSITIVE_INFINITY;

  constructor(settings: ClassSettings, fleet: FleetUsage) {
    this.settings = settings;
    this.#fleet = fleet;
    this.served = new ServedTokens(usageHalfLifeMs, {
      of: (tenant) => fleet.elsewhere(settings.name, tenant),
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
      this.#fleet.waits(this.settings.name, tenant, true);
    }
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
    if (entries.length === 0) {
      this.#byTenant.delete(tenant);
      this.#fleet.waits(this.settings.name, tenant, false);
    }
    this.count -= 1;
    this.uncachedTokens -= entry.uncachedTokens;
    if (this.count === 0) {
      this.uncachedTokens = 0;
      this.leaveByMs = Number.POSITIVE_INFINITY;
    }
  }

  /** The next request to try: of the tenant that was served least, among those with one that `scan` has not seen. */
  next(scan: ScanState, nowMs: number): Waiting | undefined {
    let chosen: Waiting | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const [tenant, entries] of this.#byTenant) {
      const entry = entries[scan.get(tenant) ?? 0];
      if (!entry) continue;
      const standing = this.#byTenant.size === 1 ? 0 : this.served.standing(tenant, nowMs);
      if (standing > least || (standing === least && chosen && chosen.sequence < entry.sequence)) continue;
      chosen = entry;
      least = standing;
    }
    return chosen;
  }

  /** The entry that came last; of one tenant alone when it is given. */
  youngest(tenant?: string): Waiting | undefined {
    let youngest: Waiting | undefined;
    for (const entry of this.#entries(tenant)) {
      if (!youngest || entry.sequence > youngest.sequence) youngest = entry;
    }
    return youngest;
  }

  /** The tenant with the most requests waiting, if it has at least two more than another one. */
  crowdingTenant(beside: string): string | undefined {
    let crowd = (this.#byTenant.get(beside)?.length ?? 0) + 1;
    let crowding: string | undefined;
    for (const [tenant, { length }] of this.#byTenant) {
      if (tenant === beside || length <= crowd) continue;
      crowd = length;
      crowding = tenant;
    }
    return crowding;
  }

  /** Entries that had to leave by now. Looks at all of them only when one may be. */
  overdue(nowMs: number): readonly Waiting[] {
    if (this.leaveByMs > nowMs) return [];
    const overdue: Waiting[] = [];
    this.leaveByMs = Number.POSITIVE_INFINITY;
    for (const entry of this.#entries()) {
      if (entry.leaveByMs <= nowMs) overdue.push(entry);
      else this.leaveByMs = Math.min(this.leaveByMs, entry.leaveByMs);
    }
    return overdue;
  }

  *#entries(tenant?: string): Iterable<Waiting> {
    for (const [name, entries] of this.#byTenant) if (tenant === undefined || name === tenant) yield* entries;
  }
}

/** After all that are not later: equals keep the order in which they came. */
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
