import { DecayedSum, usageHalfLifeMs } from "@espalier/common";
import type { UsageFrame, UsageReport } from "./usage-frame.ts";
import type { UsageLimits } from "./usage-limits.ts";
import type { UsagePart, UsageSums } from "./usage-sums.ts";

interface Part extends UsagePart {
  waitsUntilMs: number;
  /** Of the frame that told it; -1 when an earlier life of the router did. */
  counter: number;
}

/**
 * What one other router has told of its tenants: of each the report with the highest counter, in whatever order reports
 * come. What an earlier life of it has served stays until the later one tells of the same tenant.
 */
export class OriginUsage {
  epoch: number;
  heardMs = Number.NEGATIVE_INFINITY;
  /** The highest of all frames of this life. */
  counter = -1;
  readonly #sums: UsageSums;
  readonly #limits: UsageLimits;
  /** The one told of latest last. */
  readonly #parts = new Map<number, Part>();

  constructor(epoch: number, { sums, limits }: { readonly sums: UsageSums; readonly limits: UsageLimits }) {
    this.epoch = epoch;
    this.#sums = sums;
    this.#limits = limits;
  }

  /** Takes a frame of this life or of a later one. @returns whether it said anything new */
  apply(frame: UsageFrame, nowMs: number): boolean {
    if (frame.origin.epoch > this.epoch) this.#beginLife(frame.origin.epoch);
    let isNews = frame.counter > this.counter;
    if (isNews) {
      this.counter = frame.counter;
      // A relay repeats what it has heard: that does not make it any younger.
      this.heardMs = Math.max(this.heardMs, nowMs - (frame.relayedAgeMs ?? 0));
    }
    for (const report of frame.reports) if (this.#report(report, nowMs)) isNews = true;
    return isNews;
  }

  /** What this life told, as it is by now. */
  reports(nowMs: number): readonly UsageReport[] {
    const reports: UsageReport[] = [];
    for (const { key, counter, served, lift, waitsUntilMs } of this.#parts.values()) {
      if (counter < 0) continue;
      const [tokens, lifted] = [Math.round(served.at(nowMs)), Math.round(lift.at(nowMs))];
      reports.push({ key, counter, tokens, lift: lifted, isWaiting: waitsUntilMs > nowMs });
    }
    return reports;
  }

  get tenants(): number {
    return this.#parts.size;
  }

  /** Forgets those that have less than `tokens` by now. */
  forgetBelow(tokens: number, nowMs: number): void {
    for (const part of this.#parts.values()) {
      if (Math.max(part.served.at(nowMs), part.lift.at(nowMs)) < tokens) this.#forget(part, nowMs);
    }
  }

  #beginLife(epoch: number): void {
    this.epoch = epoch;
    this.counter = -1;
    for (const part of this.#parts.values()) part.counter = -1;
  }

  #report({ key, counter, tokens, lift, isWaiting }: UsageReport, nowMs: number): boolean {
    const part = this.#parts.get(key) ?? newPart(key);
    if (counter <= part.counter) return false;
    part.counter = counter;
    part.served.set(tokens, nowMs);
    part.lift.set(lift, nowMs);
    part.waitsUntilMs = isWaiting ? nowMs + this.#limits.waitLeaseMs : Number.NEGATIVE_INFINITY;
    this.#parts.delete(key);
    this.#makeRoom(nowMs);
    this.#parts.set(key, part);
    this.#sums.changed(part, nowMs);
    return true;
  }

  #makeRoom(nowMs: number): void {
    if (this.#parts.size < this.#limits.maxTenantsOfRouter) return;
    for (const oldest of this.#parts.values()) {
      this.#forget(oldest, nowMs);
      return;
    }
  }

  #forget(part: Part, nowMs: number): void {
    this.#parts.delete(part.key);
    this.#sums.remove(part, nowMs);
  }
}

function newPart(key: number): Part {
  const [served, lift] = [new DecayedSum(usageHalfLifeMs), new DecayedSum(usageHalfLifeMs)];
  return { key, counter: -1, served, lift, waitsUntilMs: Number.NEGATIVE_INFINITY };
}
