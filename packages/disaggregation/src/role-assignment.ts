import type { Clock, EngineRole } from "@espalier/common";
import { hashString } from "@espalier/policies";

/** Assigns engines of role `both` to prefill or decode, by the mix of recent requests. */
export interface RoleAssignment {
  /**
   * Updates the assignment; at most once a second, so it may be called for every request.
   *
   * @param share of the work that is prefill, 0 to 1; NaN where it is not known
   */
  update(engines: () => readonly AssignableEngine[], share: () => number): void;
  /** Undefined for engines of other roles, and before the first assignment. */
  assignedRoleOf(engine: AssignableEngine): "prefill" | "decode" | undefined;
  /** Whether the assignment lets an engine take a side. */
  allows(engine: AssignableEngine, side: "prefill" | "decode"): boolean;
  /** Engines that prefill for others, those of role `prefill` included; undefined before the first assignment. */
  readonly prefillCount: number | undefined;
  readonly count: PrefillCount;
}

/** An engine, as the assignment needs it. */
export interface AssignableEngine {
  readonly id: string;
  readonly role: EngineRole;
}

const refreshMs = 1_000;

/** Every engine may take either side until the first assignment. */
export function createRoleAssignment(clock: Clock): RoleAssignment {
  const count = createPrefillCount(clock);
  let updatedMs = Number.NEGATIVE_INFINITY;
  let duties: ReadonlySet<string> | undefined;
  let prefillCount: number | undefined;
  const assignedRoleOf: RoleAssignment["assignedRoleOf"] = ({ id, role }) => {
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
      duties = wanted === undefined ? undefined : choosePrefillEngines(known, wanted);
      prefillCount = duties && duties.size + known.filter(({ role }) => role === "prefill").length;
    },
    assignedRoleOf,
    allows: (engine, side) => (assignedRoleOf(engine) ?? side) === side,
  };
}

/**
 * Chooses the engines of role `both` that prefill, so that `prefillEngines` of all engines do; the others decode. They are the
 * first in the order of their hashes, which is the same at every router: one engine more or less changes one assignment.
 * Engines of other roles keep them, and at least one engine decodes.
 *
 * @param engines usable ones of one pool
 * @param prefillEngines how many should prefill
 * @returns their ids
 */
export function choosePrefillEngines(
  engines: readonly AssignableEngine[],
  prefillEngines: number,
): ReadonlySet<string> {
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

/** Seed of the order of engines. */
const orderSeed = 0x2545f491;

/** How many engines prefill: follows the share of prefill in the work. */
export interface PrefillCount {
  /**
   * @param share of prefill in the work, 0 to 1; NaN before the first request
   * @returns from 1 to one less than `engineCount`; undefined before the first decision, or with fewer than two engines
   */
  next(share: number, engineCount: number): number | undefined;
  /** Undefined before the first one. */
  decision(): PrefillCountDecision | undefined;
  /** Takes over a peer's decision, if that is later. */
  adopt(decision: PrefillCountDecision): void;
}

/** How many engines prefill, and how long ago that was decided. */
export interface PrefillCountDecision {
  readonly count: number;
  readonly ageMs: number;
}

/** The first decision comes after so much time with work. */
export const prefillCountSettleMs = 30_000;
/** A decision stands at least so long. */
export const prefillCountHoldMs = 30_000;
/** Hysteresis in engines: the share must be a quarter beyond the middle to the next number. */
export const prefillCountBand = 0.75;

/**
 * Changes by one engine at a time, with a hold time and hysteresis. Of the decisions of several routers the latest counts, so
 * that they agree.
 */
export function createPrefillCount(clock: Clock): PrefillCount {
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
        if (seenMs === undefined || nowMs - seenMs < prefillCountSettleMs || Number.isNaN(share)) return undefined;
        decide(bounded(Math.round(wanted)), nowMs);
      } else if (nowMs - changedMs >= prefillCountHoldMs && Math.abs(wanted - count) > prefillCountBand) {
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
