import type { Clock } from "@espalier/common";
import type { PrefixIndex } from "@espalier/prefix-index";
import type { PlacementWriter } from "./prefix-knowledge.ts";

/** Guesses that nobody else is told of. */
export function createLocalPlacements(index: PrefixIndex, clock: Clock): PlacementWriter {
  return {
    place(target, { chain, blockCount }, ttlMs) {
      index.place(target, chain, blockCount, { nowMs: clock.nowMs(), ttlMs });
    },
    confirm(target, { chain, blockCount }, ttlMs) {
      index.confirm(target, chain, blockCount, { nowMs: clock.nowMs(), ttlMs });
    },
    refute(target, { chain, blockCount }, from) {
      index.refute(target, chain, { from, blockCount, nowMs: clock.nowMs() });
    },
  };
}
