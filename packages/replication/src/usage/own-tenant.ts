import { DecayedSum, usageHalfLifeMs } from "@espalier/common";
import { maxUsageTokens } from "./usage-frame.ts";

/** What a frame says of one tenant, before the frame has a counter. */
export interface OwnUsageReport {
  readonly key: number;
  readonly tokens: number;
  readonly lift: number;
  readonly isWaiting: boolean;
}

/** What this router has done for one tenant, and what everybody was told of it. */
export class OwnTenant {
  readonly key: number;
  readonly served = new DecayedSum(usageHalfLifeMs);
  readonly lift = new DecayedSum(usageHalfLifeMs);
  isWaiting = false;
  /** One of those that others are told of. */
  isNamed: boolean;
  readonly #toldServed = new DecayedSum(usageHalfLifeMs);
  readonly #toldLift = new DecayedSum(usageHalfLifeMs);
  #toldWaiting = false;

  constructor(key: number, isNamed: boolean) {
    this.key = key;
    this.isNamed = isNamed;
  }

  /** Nothing that others would have to know. */
  isIdle(nowMs: number): boolean {
    return !this.isWaiting && this.served.at(nowMs) < 1 && this.lift.at(nowMs) < 1;
  }

  /** @param share of what there is that has to be new before it matters */
  hasNews(share: number, nowMs: number): boolean {
    if (this.isWaiting !== this.#toldWaiting) return true;
    const served = this.served.at(nowMs);
    const lift = this.lift.at(nowMs);
    return (
      (served >= 1 && served - this.#toldServed.at(nowMs) >= share * served) ||
      (lift >= 1 && lift - this.#toldLift.at(nowMs) >= share * lift)
    );
  }

  report(nowMs: number): OwnUsageReport {
    const { key, isWaiting } = this;
    return { key, tokens: rounded(this.served.at(nowMs)), lift: rounded(this.lift.at(nowMs)), isWaiting };
  }

  /** The report goes to everybody. */
  tell(nowMs: number): OwnUsageReport {
    const report = this.report(nowMs);
    this.#toldServed.set(report.tokens, nowMs);
    this.#toldLift.set(report.lift, nowMs);
    this.#toldWaiting = report.isWaiting;
    return report;
  }
}

function rounded(tokens: number): number {
  return Math.min(maxUsageTokens, Math.round(tokens));
}
