/** A key that had a turn, between the one whose turn came before and the one whose turn came after. */
export interface Turn {
  readonly key: string;
  older: Turn | undefined;
  newer: Turn | undefined;
  /** The decision that last had the key as a candidate, and its index there. */
  stamp: number;
  index: number;
}

/** The last turn of each key, in order: a linked list, so that a turn costs the same however many there are. */
export interface RecentTurns {
  /** The key's last turn, or undefined when it had none or it is forgotten. */
  get(key: string): Turn | undefined;
  /** The turn that is longest ago; from there `newer` leads on. */
  oldest(): Turn | undefined;
  /** Gives the key a turn now. */
  take(key: string): void;
}

/** @param capacity keys that are remembered; one more makes it forget the one whose turn is longest ago */
export function createRecentTurns(capacity: number): RecentTurns {
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
