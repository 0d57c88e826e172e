import type { Clock, EngineRole } from "@espalier/core";
import { hashString } from "@espalier/policies";

/** Assigns engines of role `both` to prefill or decode, by the mix of recent requests. */
export interface RoleAssignment {
  /**
   * Updates the assignment at most once per second, so it may be called for every request.
   *
   * @param share share of prefill in the work, 0 to 1; NaN if unknown
   */
  update(engines: () => readonly AssignableEngine[], share: () => number): void;
  /** Undefined for engines of other roles, and before the first assignment. */
  assignedRoleOf(engine: AssignableEngine): "prefill" | "decode" | undefined;
  /** Whether the assignment lets an engine take this side. */
  allows(engine: AssignableEngine, side: "prefill" | "decode"): boolean;
  /** Engines that prefill for others, including those of role `prefill`; undefined before the first assignment. */
  readonly prefillCount: number | undefined;
  readonly count: PrefillCount;
}

/** What the assignment needs to know about an engine. */
export interface AssignableEngine {
  readonly id: string;
  readonly role: EngineRole;
}

const refreshMs = 1_000;

/** Until the first assignment every engine may take either side. */
export function createRoleAssignment(clock: Clock): RoleAssignment {
  const count = createPrefillCount(clock);
  let updatedMs = Number.NEGATIVE_INFINITY;
  let chosen: ReadonlySet<string> | undefined;
  let prefillCount: number | undefined;
  const assignedRoleOf: RoleAssignment["assignedRoleOf"] = ({ id, role }) => {
    if (role !== "both" || !chosen) return undefined;
    return chosen.has(id) ? "prefill" : "decode";
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
      chosen = wanted === undefined ? undefined : choosePrefillEngines(known, wanted);
      prefillCount = chosen && chosen.size + known.filter(({ role }) => role === "prefill").length;
    },
    assignedRoleOf,
    allows: (engine, side) => (assignedRoleOf(engine) ?? side) === side,
  };
}

/**
 * Chooses the engines of role `both` that prefill, so that `prefillEngines` engines prefill in all; the others decode.
 * It takes the first in the order of their hashes. All routers have the same order, and adding or removing an engine
 * changes one assignment. Engines of other roles keep their role, and at least one engine decodes.
 *
 * @param engines the usable engines of one pool
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

/** How many engines prefill. Follows the share of prefill in the work. */
export interface PrefillCount {
  /**
   * @param share share of prefill in the work, 0 to 1; NaN before the first request
   * @returns from 1 to `engineCount` - 1; undefined before the first decision, or with fewer than two engines
   */
  next(share: number, engineCount: number): number | undefined;
  /** Undefined before the first decision. */
  decision(): PrefillCountDecision | undefined;
  /** Adopts a peer's decision if it is later. */
  adopt(decision: PrefillCountDecision): void;
}

/** How many engines prefill, and how long ago that was decided. */
export interface PrefillCountDecision {
  readonly count: number;
  readonly ageMs: number;
}

/** The first decision follows after this much time with work. */
export const prefillCountSettleMs = 30_000;
/** A decision holds for at least this long. */
export const prefillCountHoldMs = 30_000;
/** Hysteresis in engines: the share must pass the midpoint to the next number by a quarter. */
export const prefillCountBand = 0.75;

/**
 * Changes by one engine at a time, with a hold time and hysteresis. If several routers decide, the latest decision
 * counts, so that they agree.
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
