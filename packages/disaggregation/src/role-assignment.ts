import type { Clock, EngineRole } from "@espalier/common";
import { hashString } from "@espalier/policies";

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

/** An engine as far as its part in pairs goes. */
export interface DutyEngine {
  readonly id: string;
  readonly role: EngineRole;
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

/**
 * Which engines of role `both` compute prompts for others, where so many of all engines should; the other ones answer. They
 * are the first ones of an order of hashes, in which names have the same places at every router: one engine more or less
 * changes one duty. Engines of the other roles count with what they are for, and one engine at least answers.
 *
 * @param engines of one pool that can take work
 * @param prefillEngines how many should compute prompts
 * @returns their ids
 */
export function prefillDuties(engines: readonly DutyEngine[], prefillEngines: number): ReadonlySet<string> {
  const either = engines.filter(({ role }) => role === "both");
  const fixedPrefill = engines.filter(({ role }) => role === "prefill").length;
  const hasDecode = engines.length > either.length + fixedPrefill;
  const most = hasDecode ? either.length : either.length - 1;
  const count = Math.max(0, Math.min(most, prefillEngines - fixedPrefill));
  return new Set(
    either
      .map(({ id }) => ({ id, place: hashString(id, orderSeed) }))
      .sort((one, other) => one.place - other.place || (one.id < other.id ? -1 : 1))
      .slice(0, count)
      .map(({ id }) => id),
  );
}

/** Sets the order of engines apart from other uses of the hash. */
const orderSeed = 0x2545f491;

/** How many engines compute prompts, following the share of the work that prefill is. */
export interface DutyCount {
  /**
   * @param share of the work that is prefill, 0 to 1; NaN before the first request
   * @returns from 1 to one less than there are engines; undefined as long as too little is known, or with fewer than two
   */
  next(share: number, engineCount: number): number | undefined;
  /** Undefined before the first one. */
  decision(): DutyDecision | undefined;
  /** Takes over what another router has decided, if that was later. */
  adopt(decision: DutyDecision): void;
}

/** How many engines compute prompts, and how long ago that was decided. */
export interface DutyDecision {
  readonly count: number;
  readonly ageMs: number;
}

/** The first number is decided when work has been seen for so long. */
export const dutySettleMs = 30_000;
/** What changed stays for so long. */
export const dutyHoldMs = 30_000;
/** How far the share has to be from the number that is, in engines: a quarter beyond the middle to the next number. */
export const dutyBand = 0.75;

/**
 * Changes by one engine at a time, seldom, and not where the next request may change it back. Of what several routers have
 * decided the latest counts, so that they come to the same number.
 */
export function createDutyCount(clock: Clock): DutyCount {
  let seenMs: number | undefined;
  let count: number | undefined;
  let changedMs = Number.NEGATIVE_INFINITY;
  const decide = (decided: number, atMs: number): void => {
    count = decided;
    changedMs = atMs;
  };
  return {
    next(share, engineCount) {
      if (engineCount < 2) return undefined;
      const bounded = (value: number): number => Math.min(engineCount - 1, Math.max(1, value));
      const nowMs = clock.nowMs();
      if (!Number.isNaN(share)) seenMs ??= nowMs;
      const wanted = share * engineCount;
      if (count === undefined) {
        if (seenMs === undefined || nowMs - seenMs < dutySettleMs || Number.isNaN(share)) return undefined;
        decide(bounded(Math.round(wanted)), nowMs);
      } else if (nowMs - changedMs >= dutyHoldMs && Math.abs(wanted - count) > dutyBand) {
        const changed = bounded(count + Math.sign(wanted - count));
        if (changed !== count) decide(changed, nowMs);
      }
      return count === undefined ? undefined : bounded(count);
    },
    decision: () => (count === undefined ? undefined : { count, ageMs: clock.nowMs() - changedMs }),
    adopt({ count: adopted, ageMs }) {
      const atMs = clock.nowMs() - ageMs;
      if (adopted !== count && atMs > changedMs) decide(adopted, atMs);
    },
  };
}
