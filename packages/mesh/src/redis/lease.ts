import { asRouterId } from "@espalier/common";
import type { Origin } from "@espalier/replication";

/** What a router says of itself in its lease. */
export interface Lease {
  readonly origin: Origin;
  /** Rises with every renewal, so that who waits for a lease to lapse sees that it is renewed. */
  readonly beat: number;
  /** It has all that its peers have, and so can give it to newcomers. */
  readonly isReady: boolean;
  readonly isDraining: boolean;
  readonly unreachable: readonly string[];
}

const maxUnreachable = 65_536;

/**
 * Renews a lease unless another life of the same router holds it. Answers 0 when it does, 1 when the lease was there,
 * 2 when it had lapsed or was lost.
 */
export const renewScript = `
local held = redis.call('GET', KEYS[1])
local epoch = held and string.match(held, '^(%d+) ')
if epoch and epoch ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if held then return 1 end
return 2`;

/** Gives a lease back if it is this life's. */
export const releaseScript = `
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^(%d+) ') == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`;

export function encodeLease({ origin, beat, isReady, isDraining, unreachable }: Lease): string {
  return `${origin.epoch} ${JSON.stringify({ beat, isReady, isDraining, unreachable })}`;
}

/** @throws RangeError for a text that is no lease */
export function decodeLease(router: string, text: string): Lease {
  const match = /^(\d{1,16}) (\{.*\})$/s.exec(text);
  const epoch = Number(match?.[1]);
  if (!match || !Number.isSafeInteger(epoch)) throw new RangeError("no lease");
  let value: Readonly<Partial<Record<keyof Lease, unknown>>>;
  try {
    value = JSON.parse(match[2]!);
  } catch (cause) {
    throw new RangeError("a lease is no JSON", { cause });
  }
  const { beat, isReady, isDraining, unreachable } = value;
  const areFlags = typeof isReady === "boolean" && typeof isDraining === "boolean";
  if (typeof beat !== "number" || !areFlags || !isTargets(unreachable)) throw new RangeError("a lease is malformed");
  return { origin: { router: asRouterId(router), epoch }, beat, isReady, isDraining, unreachable };
}

function isTargets(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.length <= maxUnreachable && value.every((target) => typeof target === "string");
}
