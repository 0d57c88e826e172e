import type { Clock } from "@espalier/common";
import { createDutyCount, type DutyCount } from "./duty-count.ts";
import { type DutyEngine, prefillDuties } from "./prefill-duties.ts";

/** Which side of pairs the engines of role `both` are on, by the mix of recent requests. */
export interface RoleDuties {
  /**
   * Looks again who is there and what is asked for; at most once a second, so it may be called for every request.
   *
   * @param share of the work that is prefill, 0 to 1; NaN where it is not known
   */
  update(engines: () => readonly DutyEngine[], share: () => number): void;
  /** Undefined for engines of the other roles, and as long as too little is known. */
  dutyOf(engine: DutyEngine): "prefill" | "decode" | undefined;
  /** Whether an engine may be on a side, as far as duties go. */
  allows(engine: DutyEngine, side: "prefill" | "decode"): boolean;
  /** Engines that compute prompts for others, those of role `prefill` included; undefined while there are no duties. */
  readonly prefillCount: number | undefined;
  readonly count: DutyCount;
}

const refreshMs = 1_000;

/** Every engine is on either side until the first duties are given. */
export function createRoleDuties(clock: Clock): RoleDuties {
  const count = createDutyCount(clock);
  let updatedMs = Number.NEGATIVE_INFINITY;
  let duties: ReadonlySet<string> | undefined;
  let prefillCount: number | undefined;
  const dutyOf: RoleDuties["dutyOf"] = ({ id, role }) => {
    if (role !== "both" || !duties) return undefined;
    return duties.has(id) ? "prefill" : "decode";
  };
  return {
    count,
    get prefillCount() {
      return prefillCount;
    },
    update(engines, share) {
      if (clock.nowMs() - updatedMs < refreshMs) return;
      updatedMs = clock.nowMs();
      const known = engines();
      const wanted = count.next(share(), known.length);
      duties = wanted === undefined ? undefined : prefillDuties(known, wanted);
      prefillCount = duties && duties.size + known.filter(({ role }) => role === "prefill").length;
    },
    dutyOf,
    allows: (engine, side) => (dutyOf(engine) ?? side) === side,
  };
}
