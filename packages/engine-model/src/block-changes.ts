/** Kinds of runs in `BlockChanges`. Blocks are `offloaded` to CPU memory, besides where they were, and `discarded` there. */
export const blockChange = { stored: 0, removed: 1, cleared: 2, offloaded: 3, discarded: 4 } as const;

/**
 * Net changes of what is reusable in an engine, in order. Run `i` covers blocks `ends[i - 1]` (0 for the first run) to
 * `ends[i]` (exclusive) of `words`; one that clears covers none. A receiver may keep the arrays, and must not write to
 * them.
 */
export interface BlockChanges {
  readonly runs: number;
  /** One of `blockChange` per run. */
  readonly kinds: Uint8Array;
  readonly ends: Uint32Array;
  /** Chain hashes, two words each, as the requests gave them. */
  readonly words: Uint32Array;
}
