/** Owners (requests of a trace, or users) and parts (turns) that have ids of their own. */
export const maxTextOwners = 2 ** 22;
export const maxTextParts = 2 ** 14;

/**
 * The id of a text that nobody shares, above the ids of any trace's blocks (which count up from 0) and unique by seed,
 * owner and part.
 */
export function ownTextId(of: { readonly seed: number; readonly owner: number; readonly part: number }): number {
  const { seed, owner, part } = of;
  return 2 ** 52 + ((seed & 0xffff) * maxTextOwners + owner) * maxTextParts + part;
}
