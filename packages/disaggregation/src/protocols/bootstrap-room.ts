import type { Random } from "@espalier/common";

const lowBits = 32n;
const lowBound = 2 ** 32;
/** A room is a signed 64-bit integer that is not negative. */
const highBound = 2 ** 31;

/**
 * A random room for two engines of SGLang to meet in. The prefill engine's rank is the room modulo its number of ranks,
 * so a room chooses a rank.
 *
 * @returns decimal digits: the number does not fit into a double
 */
export function bootstrapRoom(random: Random, rank: number, rankCount: number): string {
  const drawn = (BigInt(random.integer(highBound)) << lowBits) | BigInt(random.integer(lowBound));
  const ranks = BigInt(rankCount);
  // Rounding down keeps it below the bound; a rank is less than what was cut off or than one whole step.
  const base = drawn - (drawn % ranks);
  const room = base + BigInt(rank);
  return String(room < BigInt(highBound) << lowBits ? room : room - ranks);
}
