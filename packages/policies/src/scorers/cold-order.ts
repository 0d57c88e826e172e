import type { Decision, Scorer } from "../decision.ts";
import { type TierCredits, writeCredits } from "../match.ts";

/** Number of candidates whose cold prompts are remembered. Beyond it the one with the oldest turn is forgotten. */
export const maxColdSlots = 1_024;

/** The order in which candidates last took a cold prompt. */
export interface ColdOrder {
  /**
   * For a cold prompt: 1 for candidates that took none yet, then less with every rank, down to 0 for the one that took
   * the last. If any candidate has a part of the prompt, all get 0.5. Spreads new blocks over all caches.
   */
  readonly score: Scorer;
  /** Call when the candidate at this index takes the prompt of the decision. */
  took(decision: Decision, index: number): void;
}

export function createColdOrder(credits: TierCredits): ColdOrder {
  const turns = createRecentTurns(maxColdSlots);
  let stamp = 0;
  let matched = new Float64Array(0);

  const isCold = (decision: Decision): boolean => {
    const { eligible, eligibleCount, costs } = decision;
    if (matched.length < costs.length) matched = new Float64Array(costs.length);
    writeCredits(decision, credits, matched);
    for (let place = 0; place < eligibleCount; place++) {
      if (matched[eligible[place]!]! > 0) return false;
    }
    return true;
  };
  /** Writes every score. Remembered candidates rank behind the others, the oldest turn first. */
  const rank = ({ candidates, eligible, eligibleCount }: Decision, out: Float64Array): void => {
    stamp += 1;
    let position = eligibleCount;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      out[index] = 1;
      const turn = turns.get(candidates.key[index]!);
      if (turn === undefined) continue;
      turn.stamp = stamp;
      turn.index = index;
      position -= 1;
    }
    for (let turn = turns.oldest(); turn !== undefined; turn = turn.newer) {
      if (turn.stamp === stamp) out[turn.index] = 1 - position++ / Math.max(1, eligibleCount - 1);
    }
  };

  return {
    score: {
      name: "no_hit_lru",
      score(decision, out) {
        if (isCold(decision)) rank(decision, out);
        else for (let place = 0; place < decision.eligibleCount; place++) out[decision.eligible[place]!] = 0.5;
      },
    },
    took(decision, index) {
      if (isCold(decision)) turns.take(decision.candidates.key[index]!);
    },
  };
}

/** A key that had a turn, linked to the turns before and after it. */
interface Turn {
  readonly key: string;
  older: Turn | undefined;
  newer: Turn | undefined;
  /** The decision that last had the key as a candidate, and its index there. */
  stamp: number;
  index: number;
}

/** The last turn of each key, in order. A linked list, so the cost of a turn does not depend on the number of keys. */
interface RecentTurns {
  /** The key's last turn; undefined if it had none or was forgotten. */
  get(key: string): Turn | undefined;
  /** The oldest turn; follow `newer` from there. */
  oldest(): Turn | undefined;
  /** Gives the key the newest turn. */
  take(key: string): void;
}

/** @param capacity keys to remember; one more makes it forget the key with the oldest turn */
function createRecentTurns(capacity: number): RecentTurns {
  const turns = new Map<string, Turn>();
  let oldest: Turn | undefined;
  let newest: Turn | undefined;

  const unlink = (turn: Turn): void => {
    if (turn.older === undefined) oldest = turn.newer;
    else turn.older.newer = turn.newer;
    if (turn.newer === undefined) newest = turn.older;
    else turn.newer.older = turn.older;
  };
  const append = (turn: Turn): void => {
    turn.older = newest;
    turn.newer = undefined;
    if (newest === undefined) oldest = turn;
    else newest.newer = turn;
    newest = turn;
  };

  return {
    get: (key) => turns.get(key),
    oldest: () => oldest,
    take(key) {
      let turn = turns.get(key);
      if (turn !== undefined) {
        unlink(turn);
      } else {
        if (turns.size === capacity && oldest !== undefined) {
          turns.delete(oldest.key);
          unlink(oldest);
        }
        turn = { key, older: undefined, newer: undefined, stamp: 0, index: 0 };
        turns.set(key, turn);
      }
      append(turn);
    },
  };
}
