import { DecayedSum, RecencyMap } from "@espalier/common";
import type { TenantElsewhere } from "./fleet-usage.ts";

/** Owners whose tokens are remembered; beyond it, those that were served longest ago are forgotten. */
export const maxServedOwners = 4_096;

interface Account {
  readonly owner: string;
  readonly served: DecayedSum;
  /** What keeps an owner that was away from catching up on what it did not ask for. */
  readonly lift: DecayedSum;
}

/** Others who serve the same owners. */
export interface ServedElsewhere {
  /** Undefined for an owner that nobody told of. */
  of(owner: string): TenantElsewhere | undefined;
  lifted(owner: string, tokens: number): void;
}

/**
 * Who has been served how much, so that the one with the least goes next. An owner that comes back is lifted to the
 * least of those that are waiting: time without requests saves nothing up (Sheng and others, "Fairness in Serving Large
 * Language Models", OSDI 2024). One that waits elsewhere was not away. Old service is forgotten at a steady rate, so that
 * counters of several routers can be added up whenever each began to count; of lifts, which each of them gives for the
 * same absence, the greatest counts.
 */
export class ServedTokens {
  readonly #halfLifeMs: number;
  readonly #elsewhere: ServedElsewhere | undefined;
  readonly #accounts = new RecencyMap<string, Account>();

  /** @param elsewhere undefined when nobody else serves these owners */
  constructor(halfLifeMs: number, elsewhere?: ServedElsewhere) {
    this.#halfLifeMs = halfLifeMs;
    this.#elsewhere = elsewhere;
  }

  charge(owner: string, tokens: number, nowMs: number): void {
    this.#account(owner).served.add(tokens, nowMs);
    this.#accounts.use(owner);
  }

  /** Tokens served here and elsewhere, and the lift: the owner with the least of them has the next turn. */
  standing(owner: string, nowMs: number): number {
    const account = this.#accounts.get(owner);
    const others = this.#elsewhere?.of(owner);
    const own = account ? account.served.at(nowMs) : 0;
    const lift = Math.max(account ? account.lift.at(nowMs) : 0, others?.lift ?? 0);
    return own + (others?.tokens ?? 0) + lift;
  }

  /** An owner begins to wait, beside others that do. */
  arrived(owner: string, waiting: Iterable<string>, nowMs: number): void {
    const others = this.#elsewhere?.of(owner);
    if (others?.waits === true) return;
    let least = Number.POSITIVE_INFINITY;
    for (const other of waiting) {
      if (other !== owner) least = Math.min(least, this.standing(other, nowMs));
    }
    const missing = least - this.standing(owner, nowMs);
    if (!(missing > 0 && least < Number.POSITIVE_INFINITY)) return;
    const { lift } = this.#account(owner);
    lift.set(Math.max(lift.at(nowMs), others?.lift ?? 0) + missing, nowMs);
    this.#elsewhere?.lifted(owner, lift.at(nowMs));
  }

  /** Tokens served here, by owner. */
  *entries(nowMs: number): Iterable<readonly [owner: string, tokens: number]> {
    for (const { owner, served } of this.#accounts.values()) yield [owner, served.at(nowMs)];
  }

  #account(owner: string): Account {
    const known = this.#accounts.get(owner);
    if (known) return known;
    if (this.#accounts.size >= maxServedOwners) this.#accounts.deleteOldest();
    const account = { owner, served: new DecayedSum(this.#halfLifeMs), lift: new DecayedSum(this.#halfLifeMs) };
    this.#accounts.set(owner, account);
    return account;
  }
}
