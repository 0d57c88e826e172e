import type { EngineRole } from "@espalier/common";
import { hashString } from "@espalier/policies";

/** An engine as far as its part in pairs goes. */
export interface DutyEngine {
  readonly id: string;
  readonly role: EngineRole;
}

/** Sets the order of engines apart from other uses of the hash. */
const orderSeed = 0x2545f491;

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
