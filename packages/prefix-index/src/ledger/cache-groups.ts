/** Models with more groups than this are not known. */
export const maxCacheGroups = 256;

const seen = { never: 0, full: 1, partial: 2 } as const;

/**
 * Which KV-cache groups of a hybrid model say that a prefix is there. Removals carry nothing but the group's number, so
 * what was stored with it is remembered.
 */
export class CacheGroups {
  readonly #seen = new Uint8Array(maxCacheGroups);
  #fullGroups = 0;

  /** Notes what a stored event says. Groups out of bounds cannot be noted. */
  note(group: number, partial: boolean): void {
    if (group < 0 || group >= maxCacheGroups) return;
    const now = partial ? seen.partial : seen.full;
    if (this.#seen[group] === now) return;
    if (this.#seen[group] === seen.full) this.#fullGroups--;
    if (now === seen.full) this.#fullGroups++;
    this.#seen[group] = now;
  }

  /** Whether a removal of this group (-1 when it does not say) ends what full attention has stored. */
  countsForRemoval(group: number): boolean {
    if (group < 0) return true;
    const known = group < maxCacheGroups ? this.#seen[group] : seen.never;
    return known === seen.full || (known === seen.never && this.#fullGroups === 0);
  }
}
