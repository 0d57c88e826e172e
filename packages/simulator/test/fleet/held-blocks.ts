import { blockChange } from "@espalier/engine-model";
import type { EngineMessage } from "../../src/fleet/sim-engine.ts";

/** What messages leave behind, one entry a block, by a set of names. */
export function heldAfter(messages: readonly EngineMessage[]): string[] {
  const held = new Set<string>();
  for (const { changes } of messages) {
    const { runs, kinds, ends, words } = changes;
    let block = 0;
    for (let run = 0; run < runs; run++) {
      if (kinds[run] === blockChange.cleared) held.clear();
      for (; block < ends[run]!; block++) {
        const name = nameOf(words, block);
        if (kinds[run] === blockChange.stored) held.add(name);
        else held.delete(name);
      }
    }
  }
  return [...held].sort();
}

export function nameOf(words: Uint32Array, block: number): string {
  return `${words[2 * block + 1]}:${words[2 * block]}`;
}
