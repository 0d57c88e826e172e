import { type BlockChanges, blockChange } from "./block-changes.ts";
import type { CacheLog } from "./cache-log.ts";
import type { HashChain } from "./hash-chain.ts";

/** Collects net changes of reusable blocks between two publications. */
export interface ChangeLog extends CacheLog<HashChain> {
  readonly isEmpty: () => boolean;
  /** Hands over what was collected, or undefined when there is nothing. */
  take(): BlockChanges | undefined;
}

/** Runs and words that there is room for at first. One step cannot change more than all blocks of an engine, twice. */
const FIRST_RUNS = 16;
const FIRST_WORDS = 512;

export function createChangeLog(): ChangeLog {
  let kinds = new Uint8Array(FIRST_RUNS);
  let ends = new Uint32Array(FIRST_RUNS);
  let words = new Uint32Array(FIRST_WORDS);
  let runs = 0;
  let used = 0;

  const add = (kind: number, source: Uint32Array, from: number, to: number): void => {
    if (used + to - from > words.length) words = grown(words, new Uint32Array(2 * (used + to - from)));
    for (let at = from; at < to; at++) words[used++] = source[at]!;
    if (runs === 0 || kinds[runs - 1] !== kind) {
      if (runs === kinds.length) {
        kinds = grown(kinds, new Uint8Array(2 * runs));
        ends = grown(ends, new Uint32Array(2 * runs));
      }
      kinds[runs++] = kind;
    }
    ends[runs - 1] = used / 2;
  };
  return {
    everyCopy: false,
    isEmpty: () => runs === 0,
    stored: (chain, from, to) => add(blockChange.stored, chain.lanes, 2 * from, 2 * to),
    removed: (lanes) => add(blockChange.removed, lanes, 0, lanes.length),
    cleared: () => add(blockChange.cleared, words, 0, 0),
    offloaded: (lanes) => add(blockChange.offloaded, lanes, 0, lanes.length),
    discarded: (lanes) => add(blockChange.discarded, lanes, 0, lanes.length),
    take() {
      if (runs === 0) return undefined;
      const taken = {
        runs,
        kinds: copied(kinds, new Uint8Array(runs)),
        ends: copied(ends, new Uint32Array(runs)),
        words: copied(words, new Uint32Array(used)),
      };
      runs = 0;
      used = 0;
      return taken;
    },
  };
}

function grown<Words extends Uint8Array | Uint32Array>(from: Words, to: Words): Words {
  to.set(from);
  return to;
}

/** Most changes are of one block, and for so few numbers a loop is several times as fast as `slice`. */
function copied<Words extends Uint8Array | Uint32Array>(from: Words, to: Words): Words {
  for (let at = 0; at < to.length; at++) to[at] = from[at]!;
  return to;
}
