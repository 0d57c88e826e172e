import { attention, type EngineEventBatch, tierNames } from "@espalier/prefix-index";

/** An event as plain values that tests can write down and compare. */
export interface PlainEvent {
  readonly kind: "stored" | "removed" | "cleared";
  readonly hashes: readonly bigint[];
  readonly parent: bigint | undefined;
  readonly tokens: readonly number[];
  readonly blockSize: number;
  readonly tier: string;
  readonly group: number;
  /** A name of `attention`. */
  readonly attention: string;
  readonly window: number;
  readonly detail:
    | {
        readonly adapter: string | undefined;
        readonly cacheSalt: string | undefined;
        readonly blockKeys: readonly (string | undefined)[] | undefined;
      }
    | undefined;
}

const kindNames = ["stored", "removed", "cleared"] as const;

/** Copies the events out of a batch. */
export function plainEvents(batch: EngineEventBatch): PlainEvent[] {
  const hashAt = (words: Uint32Array, index: number): bigint =>
    (BigInt(words[2 * index + 1]!) << 32n) | BigInt(words[2 * index]!);
  return Array.from({ length: batch.count }, (_, event) => {
    const hashes: bigint[] = [];
    for (let at = batch.hashStart[event]!; at < batch.hashStart[event + 1]!; at++)
      hashes.push(hashAt(batch.hashes, at));
    return {
      kind: kindNames[batch.kind[event]!]!,
      hashes,
      parent: batch.hasParent[event] === 1 ? hashAt(batch.parent, event) : undefined,
      tokens: Array.from(batch.tokens.subarray(batch.tokenStart[event], batch.tokenStart[event + 1])),
      blockSize: batch.blockSize[event]!,
      tier: tierNames[batch.tier[event]!]!,
      group: batch.group[event]!,
      attention: Object.keys(attention)[batch.attention[event]!]!,
      window: batch.window[event]!,
      detail: batch.detail[event],
    };
  });
}

/** An event with everything at its default but what is given. */
export function plainEvent(given: Partial<PlainEvent>): PlainEvent {
  return {
    kind: "stored",
    hashes: [],
    parent: undefined,
    tokens: [],
    blockSize: 0,
    tier: "gpu",
    group: -1,
    attention: "full",
    window: 0,
    detail: undefined,
    ...given,
  };
}
