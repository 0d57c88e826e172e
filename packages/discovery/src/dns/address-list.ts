import { type EngineAddress, formatHost } from "../discovered-engine.ts";

export interface AddressListOptions {
  /** Answers in a row without an address after which it is gone. */
  readonly misses: number;
  readonly maxAddresses: number;
}

/** The addresses that a name stands for, by its latest answers. */
export interface AddressList {
  /**
   * Takes an answer. New addresses count at once; a known one is gone when `misses` answers in a row lack it.
   *
   * @param isWhole whether what is not in the answer is missing
   * @returns whether the addresses are others now, and how many are left out because there are too many: those that are
   *   known stay before new ones
   */
  take(answer: readonly EngineAddress[], isWhole: boolean): { readonly hasChanged: boolean; readonly leftOut: number };
  /** In the order of their texts. */
  readonly addresses: readonly EngineAddress[];
}

export function createAddressList({ misses, maxAddresses }: AddressListOptions): AddressList {
  const known = new Map<string, { readonly at: EngineAddress; missed: number }>();
  return {
    take(answer, isWhole) {
      let hasChanged = false;
      const found = new Map(answer.map((at) => [formatHost(at), at]));
      for (const [host, entry] of known) {
        if (found.has(host)) entry.missed = 0;
        else if (isWhole) entry.missed += 1;
        if (entry.missed >= misses) hasChanged = known.delete(host);
      }
      let leftOut = 0;
      for (const [host, at] of [...found].sort(byText)) {
        if (known.has(host)) continue;
        if (known.size >= maxAddresses) {
          leftOut += 1;
          continue;
        }
        known.set(host, { at, missed: 0 });
        hasChanged = true;
      }
      return { hasChanged, leftOut };
    },
    get addresses() {
      return [...known].sort(byText).map(([, { at }]) => at);
    },
  };
}

const byText = ([left]: readonly [string, unknown], [right]: readonly [string, unknown]): number =>
  left < right ? -1 : Number(left > right);
