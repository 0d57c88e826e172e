import { EspalierError } from "@espalier/core";

/** State of the request's LoRA adapter at a candidate; the values of the column `adapterState`. */
export const adapterState = {
  /** Not loaded and no empty slot: another adapter must be evicted first. */
  none: 0,
  /** Requests for it wait for a slot. */
  waiting: 1,
  /** It has an empty slot. */
  room: 2,
  /** It is loaded. */
  active: 3,
} as const;

/** Bound of candidates in one decision, far beyond the largest pool planned for. */
export const maxCandidates = 65_536;

/**
 * What a decision knows about every candidate: a structure of arrays that is reused between requests. Index i is
 * candidate i; entries at or beyond `count` are undefined. NaN means "no signal", which is never the same as zero.
 * Growing replaces the arrays: read them from the set after `add`, and do not keep them.
 */
export interface CandidateSet {
  readonly count: number;
  /** Candidates that fit before the arrays grow. */
  readonly capacity: number;
  /** A stable identity, for example the engine id. All routers use the same. */
  readonly key: readonly string[];
  /** The caller's index of the candidate. */
  readonly target: Int32Array;
  /** Relative share of traffic, 1 by default. A candidate of weight 0 is taken only if no other has a weight. */
  readonly weight: Float64Array;
  /** Unfinished requests dispatched here, as far as the caller knows. */
  readonly inFlight: Float64Array;
  /** Prompt tokens dispatched here whose first output token has not come yet. */
  readonly pendingPrefillTokens: Float64Array;
  /** Context tokens of dispatched requests that have begun to answer. */
  readonly decodeTokens: Float64Array;
  /** Requests past their first token. */
  readonly answers: Float64Array;
  /**
   * Tokens in the prompt blocks of all unfinished requests dispatched here, including those in prefill. A block counts
   * once, even if several requests have it. Kept only for policies that read it; 0 for others.
   */
  readonly activeTokens: Float64Array;
  /**
   * Tokens in blocks of this prompt that are not in `activeTokens`, by which it would grow. NaN without an account of
   * blocks: then the whole prompt may be new.
   */
  readonly newActiveTokens: Float64Array;
  /** Sessions that are bound here, by any router. Kept only for policies that read it; 0 for others. */
  readonly sessions: Float64Array;
  /** Requests in the running batch, as the engine reports them. */
  readonly running: Float64Array;
  /** Requests in the engine's queue, as the engine reports them. */
  readonly waiting: Float64Array;
  /** Share of the engine's KV blocks in use, 0 to 1. */
  readonly kvUse: Float64Array;
  /** Total tokens that the engine's KV blocks can hold. */
  readonly kvCapacityTokens: Float64Array;
  /** Age in milliseconds of `running`, `waiting` and `kvUse`. */
  readonly signalAgeMs: Float64Array;
  /** Of `running` and `waiting`, those of the caller's fleet. The rest are other clients'. */
  readonly inFlightAtSignal: Float64Array;
  /**
   * Tokens at the start of this prompt whose blocks are on the GPU, announced by the engine, or predicted because a
   * request with that start was sent there. 0 if nothing is known: an unknown block counts as absent.
   */
  readonly matchedTokens: Float64Array;
  /** Tokens beyond `matchedTokens` that the engine keeps in CPU memory. */
  readonly matchedCpuTokens: Float64Array;
  /** Tokens beyond those that it keeps on disk. */
  readonly matchedDiskTokens: Float64Array;
  /** Tokens beyond those that it can fetch from an external pool. */
  readonly matchedExternalTokens: Float64Array;
  /** Those of `matchedExternalTokens` that only the pool announced, and not the engine. */
  readonly matchedPoolTokens: Float64Array;
  /**
   * Tokens at the start of this prompt in the engine's CPU memory, from which other engines can pull them. 0 if none can,
   * or nothing is known.
   */
  readonly lendableTokens: Float64Array;
  /** Tokens that it is sending to other engines. */
  readonly lendingTokens: Float64Array;
  /** Share of the latest pulls from it that brought what was expected, 0 to 1. */
  readonly lendTrust: Float64Array;
  /** Which engines it can pull from, and lend to: those of the same number. 0 if none. */
  readonly pullProtocol: Float64Array;
  /** Learned milliseconds to pull a token from another engine. NaN until something is learned. */
  readonly pullMsPerToken: Float64Array;
  /** Tokens beyond all matched ones that the engine should pull from another engine; 0 if computing them is better. */
  readonly pulledTokens: Float64Array;
  /** Expected milliseconds of that pull, computing after a failed one included. */
  readonly pullMs: Float64Array;
  /** Index of the candidate that it pulls from, or would if predicted blocks are not there yet. NaN without one. */
  readonly pullFrom: Float64Array;
  /** Milliseconds since the prediction behind the match was made. NaN if the engine announced the blocks. */
  readonly matchAgeMs: Float64Array;
  /** Total tokens that the engine's cache is believed to hold, for all requests. */
  readonly heldTokens: Float64Array;
  /**
   * 1 if this router is the one, of all that decide at the same time, that should send here what could go anywhere; 0
   * if another router is, or none.
   */
  readonly own: Float64Array;
  /** Milliseconds of a round trip between this router and the engine. NaN until it is measured. */
  readonly networkMs: Float64Array;
  /** Predicted milliseconds until the prompts already sent here are computed. NaN until something is learned. */
  readonly backlogMs: Float64Array;
  /** Learned milliseconds that the engine computes on one prompt token. NaN until something is learned. */
  readonly prefillMsPerToken: Float64Array;
  /** Learned additional milliseconds for each earlier token that a prompt token attends to. NaN until learned. */
  readonly prefillMsPerTokenPair: Float64Array;
  /** Learned milliseconds to bring a token back from CPU memory to the GPU. NaN until something is learned. */
  readonly cpuFetchMsPerToken: Float64Array;
  /** The same from disk. */
  readonly diskFetchMsPerToken: Float64Array;
  /** The same from an external pool. */
  readonly externalFetchMsPerToken: Float64Array;
  /** State of the request's LoRA adapter; see `adapterState`. NaN if unknown. */
  readonly adapterState: Float64Array;
  /** Removes every candidate and keeps the memory. */
  reset(): void;
  /**
   * Adds a candidate: idle, of weight 1, without engine signals or matches. The caller then writes what it knows into
   * the arrays.
   *
   * @returns its index
   * @throws EspalierError `internal_error` beyond `maxCandidates`
   */
  add(key: string, target: number): number;
}

/** The numeric columns and their defaults. */
const columnDefaults = {
  weight: 1,
  inFlight: 0,
  pendingPrefillTokens: 0,
  decodeTokens: 0,
  answers: 0,
  activeTokens: 0,
  newActiveTokens: Number.NaN,
  sessions: 0,
  running: Number.NaN,
  waiting: Number.NaN,
  kvUse: Number.NaN,
  kvCapacityTokens: Number.NaN,
  signalAgeMs: Number.NaN,
  inFlightAtSignal: Number.NaN,
  matchedTokens: 0,
  matchedCpuTokens: 0,
  matchedDiskTokens: 0,
  matchedExternalTokens: 0,
  matchedPoolTokens: 0,
  lendableTokens: 0,
  lendingTokens: 0,
  lendTrust: 1,
  pullProtocol: 0,
  pullMsPerToken: Number.NaN,
  pulledTokens: 0,
  pullMs: 0,
  pullFrom: Number.NaN,
  matchAgeMs: Number.NaN,
  heldTokens: Number.NaN,
  own: 0,
  networkMs: Number.NaN,
  backlogMs: Number.NaN,
  prefillMsPerToken: Number.NaN,
  prefillMsPerTokenPair: Number.NaN,
  cpuFetchMsPerToken: Number.NaN,
  diskFetchMsPerToken: Number.NaN,
  externalFetchMsPerToken: Number.NaN,
  adapterState: Number.NaN,
} as const;

export type CandidateColumn = keyof typeof columnDefaults;

export const candidateColumns = Object.keys(columnDefaults) as readonly CandidateColumn[];

type Columns = Record<CandidateColumn, Float64Array>;
type Writable = { -readonly [Property in keyof CandidateSet]: CandidateSet[Property] } & { key: string[] };

/** All columns in one buffer, one after the other, and the buffer's content before any candidate is added. */
interface Storage {
  readonly values: Float64Array;
  readonly untouched: Float64Array;
  readonly columns: Columns;
}

/** @param capacity number of candidates that fit before the arrays double */
export function createCandidateSet(capacity = 16): CandidateSet {
  const initialCapacity = Math.max(1, capacity);
  let storage = createStorage(initialCapacity);
  const grow = (): void => {
    if (set.capacity >= maxCandidates) {
      throw new EspalierError("internal_error", `A decision has more than ${maxCandidates} candidates.`);
    }
    set.capacity = Math.min(maxCandidates, set.capacity * 2);
    const target = new Int32Array(set.capacity);
    target.set(set.target);
    set.target = target;
    const larger = createStorage(set.capacity);
    for (const name of candidateColumns) larger.columns[name].set(storage.columns[name]);
    storage = larger;
    Object.assign(set, larger.columns);
  };
  const set: Writable = {
    count: 0,
    capacity: initialCapacity,
    key: [],
    target: new Int32Array(initialCapacity),
    ...storage.columns,
    reset() {
      // Unused entries hold the defaults, so `add` need not write them column by column.
      storage.values.set(storage.untouched);
      set.count = 0;
    },
    add(key, target) {
      const index = set.count;
      if (index === set.capacity) grow();
      set.count = index + 1;
      set.key[index] = key;
      set.target[index] = target;
      return index;
    },
  };
  return set;
}

/** A cache line between columns. Without it all entries of one candidate would compete for the same cache sets. */
const gap = 8;

function createStorage(capacity: number): Storage {
  const stride = capacity + gap;
  const values = new Float64Array(candidateColumns.length * stride);
  const columns = {} as Columns;
  for (const [position, name] of candidateColumns.entries()) {
    const column = values.subarray(position * stride, position * stride + capacity);
    columns[name] = column.fill(columnDefaults[name]);
  }
  return { values, untouched: values.slice(), columns };
}
