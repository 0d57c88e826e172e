import type { MemberEntry, MemberTable } from "./member-table.ts";
import type { MembershipDeps, MembershipLimits } from "./membership.ts";
import type { ProcessTime } from "./process-time.ts";

export interface DialPlanDeps {
  readonly ports: Pick<MembershipDeps, "self" | "address" | "dial" | "forget">;
  readonly processTime: ProcessTime;
  readonly table: MemberTable;
  readonly limits: MembershipLimits;
}

/** Seeks a link to every member that can be dialed. */
export class DialPlan {
  readonly #deps: DialPlanDeps;
  /** Addresses that are being dialed or linked. */
  readonly #wanted = new Set<string>();
  /** Addresses of forgotten members, and until when in process time. The oldest come first. */
  readonly #rejoin = new Map<string, number>();
  readonly #ownAddresses = new Set<string>();

  constructor(deps: DialPlanDeps) {
    this.#deps = deps;
  }

  /** Members, their states or their addresses have changed. */
  update(): void {
    const wanted = new Set(this.#rejoin.keys());
    for (const entry of this.#deps.table.entries.values()) {
      if (this.#seeks(entry)) wanted.add(entry.record.address);
    }
    for (const address of this.#wanted) {
      if (!wanted.has(address)) this.#drop(address);
    }
    for (const address of wanted) {
      if (this.#wanted.has(address)) continue;
      this.#wanted.add(address);
      this.#deps.ports.dial(address);
    }
  }

  /** A link to that member has ended: dial it now. */
  redial({ record }: MemberEntry): void {
    if (this.#wanted.has(record.address)) this.#deps.ports.dial(record.address);
  }

  /** An address turned out to be this router's own. */
  isOwn(address: string): void {
    if (this.#ownAddresses.size < this.#deps.limits.maxMembers) this.#ownAddresses.add(address);
    this.#rejoin.delete(address);
    if (this.#wanted.has(address)) this.#drop(address);
  }

  /**
   * A forgotten member that was down. Its address is still dialed, because its side of a split mesh may have no seed.
   */
  forgotten({ record }: MemberEntry): void {
    const { limits, processTime } = this.#deps;
    if (record.address === "") return;
    this.#rejoin.delete(record.address);
    this.#rejoin.set(record.address, processTime.nowMs() + limits.rejoinMs);
    if (this.#rejoin.size > limits.maxRejoinAddresses) {
      for (const oldest of this.#rejoin.keys()) {
        this.#rejoin.delete(oldest);
        break;
      }
    }
  }

  /** @returns whether an address was dropped from the plan */
  tick(): boolean {
    const nowMs = this.#deps.processTime.nowMs();
    let hasLapsed = false;
    for (const [address, untilMs] of this.#rejoin) {
      if (untilMs > nowMs) break;
      this.#rejoin.delete(address);
      hasLapsed = true;
    }
    return hasLapsed;
  }

  stop(): void {
    for (const address of [...this.#wanted]) this.#drop(address);
    this.#rejoin.clear();
  }

  #seeks({ record, state }: MemberEntry): boolean {
    const { address } = record;
    if (state === undefined || state === "left" || address === "") return false;
    if (address === this.#deps.ports.address() || this.#ownAddresses.has(address)) return false;
    if (state !== "down") this.#rejoin.delete(address);
    return true;
  }

  #drop(address: string): void {
    this.#wanted.delete(address);
    this.#deps.ports.forget(address);
  }
}
