import type { Clock } from "@espalier/common";
import type { Member, Origin } from "@espalier/replication";
import type { Lease } from "./lease.ts";
import type { RedisLimits } from "./redis-limits.ts";

interface Entry {
  lease: Lease;
  state: Member["state"];
  /** Since when its lease was seen missing; undefined while it is there. */
  missingSinceMs: number | undefined;
}

export interface MemberTableOptions {
  readonly clock: Clock;
  readonly limits: RedisLimits;
  readonly onChange: () => void;
  /** Nothing of what this life had in flight counts any more. */
  readonly onGone: (origin: Origin) => void;
}

/** What the leases seen so far say about the other routers. */
export class MemberTable {
  readonly #options: MemberTableOptions;
  readonly #entries = new Map<string, Entry>();
  #forgotten: string[] = [];
  #isChanged = false;

  constructor(options: MemberTableOptions) {
    this.#options = options;
  }

  /**
   * Takes one look at all leases but the own.
   *
   * @param isGrace missing leases mean nothing, because everybody was kept from renewing them
   */
  observe(leases: readonly Lease[], isGrace: boolean): void {
    this.#isChanged = false;
    const seen = new Set<string>();
    for (const lease of leases) {
      seen.add(lease.origin.router);
      this.#see(lease);
    }
    for (const [router, entry] of [...this.#entries]) {
      if (seen.has(router) && entry.state !== "left") continue;
      if (isGrace && entry.state !== "left") entry.missingSinceMs = undefined;
      else this.#miss(router, entry);
    }
    if (this.#isChanged) this.#options.onChange();
  }

  /** It said goodbye. */
  left({ router, epoch }: Origin): void {
    const entry = this.#entries.get(router);
    if (!entry || entry.lease.origin.epoch !== epoch || entry.state === "left") return;
    entry.state = "left";
    entry.missingSinceMs = this.#options.clock.nowMs();
    this.#options.onGone(entry.lease.origin);
    this.#options.onChange();
  }

  /** @param isLinked whether Redis can be reached, and through it the living */
  list(isLinked: boolean): readonly Member[] {
    return [...this.#entries.values()].map(({ lease, state }) => ({
      origin: lease.origin,
      state,
      isDraining: lease.isDraining,
      isLinked: isLinked && state === "alive",
      unreachable: lease.unreachable,
    }));
  }

  /** Whether a living router has state to give. */
  get hasReady(): boolean {
    return [...this.#entries.values()].some(({ state, lease }) => state === "alive" && lease.isReady);
  }

  /** Routers that were forgotten since this was last asked. */
  takeForgotten(): readonly string[] {
    const forgotten = this.#forgotten;
    this.#forgotten = [];
    return forgotten;
  }

  #see(lease: Lease): void {
    const { limits, onGone } = this.#options;
    const entry = this.#entries.get(lease.origin.router);
    if (!entry) {
      if (this.#entries.size >= limits.maxMembers) return;
      this.#entries.set(lease.origin.router, { lease, state: "alive", missingSinceMs: undefined });
      this.#isChanged = true;
      return;
    }
    const isSameLife = entry.lease.origin.epoch === lease.origin.epoch;
    if (lease.origin.epoch < entry.lease.origin.epoch || (isSameLife && entry.state === "left")) return;
    if (!isSameLife) onGone(entry.lease.origin);
    this.#isChanged ||= !isSameLife || entry.state !== "alive" || !saysTheSame(entry.lease, lease);
    entry.lease = lease;
    entry.state = "alive";
    entry.missingSinceMs = undefined;
  }

  #miss(router: string, entry: Entry): void {
    const { clock, limits, onGone } = this.#options;
    entry.missingSinceMs ??= clock.nowMs();
    const missingMs = clock.nowMs() - entry.missingSinceMs;
    if (entry.state === "alive") {
      entry.state = "suspect";
      this.#isChanged = true;
    }
    if (entry.state === "suspect" && missingMs >= limits.downAfterLapseMs) {
      entry.state = "down";
      this.#isChanged = true;
      onGone(entry.lease.origin);
    }
    if (missingMs < limits.forgetAfterLapseMs) return;
    this.#entries.delete(router);
    this.#forgotten.push(router);
    this.#isChanged = true;
  }
}

function saysTheSame(before: Lease, after: Lease): boolean {
  return (
    before.isDraining === after.isDraining &&
    before.unreachable.length === after.unreachable.length &&
    before.unreachable.every((target, at) => target === after.unreachable[at])
  );
}
