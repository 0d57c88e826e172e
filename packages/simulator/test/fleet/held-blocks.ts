import { type FactKind, tier } from "@espalier/prefix-index";
import { blockMoveOf, type EngineMessage } from "../../src/fleet/sim-engine.ts";

/** What messages leave behind, one entry a block, by a set of names. */
export function heldAfter(messages: readonly EngineMessage[]): string[] {
  const held = new Set<string>();
  for (const { changes } of messages) {
    const { runs, kinds, ends, words } = changes;
    let block = 0;
    for (let run = 0; run < runs; run++) {
      const move = blockMoveOf(kinds[run]!);
      if (!move) held.clear();
      for (; block < ends[run]!; block++) {
        const name = nameIn(move!.tier, words, block);
        if (move!.isStored) held.add(name);
        else held.delete(name);
      }
    }
  }
  return [...held].sort();
}

/** What is not in GPU memory says so. */
export function nameIn(inTier: FactKind, words: Uint32Array, block: number): string {
  return `${inTier === tier.gpu ? "" : `${inTier}/`}${nameOf(words, block)}`;
}

export function nameOf(words: Uint32Array, block: number): string {
  return `${words[2 * block + 1]}:${words[2 * block]}`;
}
