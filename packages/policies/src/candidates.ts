import { EspalierError } from "@espalier/common";

/** How a candidate stands to the LoRA adapter of the request in hand, as the column `adapterState` has it. */
export const adapterState = {
  /** It would have to give up another adapter first, or wait until it can. */
  none: 0,
  /** Requests for it wait there for a slot. */
  waiting: 1,
  /** It has an empty slot. */
  room: 2,
  /** It has it loaded. */
  active: 3,
} as const;

/** More candidates than this in one decision are refused: it is far beyond the largest pool planned for. */
export const maxCandidates = 65_536;

/**
 * What a decision knows about every candidate, as a structure of arrays that is reused between requests. Index i is
 * candidate i; entries at or beyond `count` mean nothing. NaN stands for "no signal", which is never the same as zero.
 * The arrays are replaced when the set grows: read them from the set after `add`, and do not keep them.
 */
export interface CandidateSet {
  readonly count: number;
  /** Candidates that fit before the arrays grow. */
  readonly capacity: number;
  /** A stable identity, for example the engine id. The same in every router. */
  readonly key: readonly string[];
  /** The caller's own index for the candidate. */
  readonly target: Int32Array;
  /** Relative share of traffic, 1 by default. A candidate of weight 0 is taken only when no other has a weight. */
  readonly weight: Float64Array;
  /** Requests dispatched here and not finished, as far as the caller knows. */
  readonly inFlight: Float64Array;
  /** Prompt tokens dispatched here whose first output token has not been seen. */
  readonly pendingPrefillTokens: Float64Array;
  /** Tokens of context held by dispatched requests that have begun to answer. */
  readonly decodeTokens: Float64Array;
  /**
   * Tokens in the prompt blocks of all requests dispatched here and not finished, those in prefill included; a block that
   * several have counts once. Kept for policies that read it alone; 0 for others.
   */
  readonly activeTokens: Float64Array;
  /**
   * Tokens in blocks of the prompt in hand that are in none of those: what `activeTokens` would grow by. NaN where no
   * account of blocks is kept, so that all of the prompt may be.
   */
  readonly newActiveTokens: Float64Array;
  /** Requests in the running batch, by the engine's own metrics. */
  readonly running: Float64Array;
  /** Requests in the engine's queue, by its own metrics. */
  readonly waiting: Float64Array;
  /** Share of the engine's KV blocks in use, 0 to 1. */
  readonly kvUse: Float64Array;
  /** Tokens that the engine's KV blocks hold in all. */
  readonly kvCapacityTokens: Float64Array;
  /** Requests that the engine runs at once at most, as learned from its metrics. NaN where it is not known. */
  readonly batchLimit: Float64Array;
  /** Age in milliseconds of `running`, `waiting` and `kvUse`. */
  readonly signalAgeMs: Float64Array;
  /** What `inFlight` was when those were read. It tells other clients' requests from the caller's own. */
  readonly inFlightAtSignal: Float64Array;
  /**
   * Tokens at the start of the prompt in hand whose blocks are in the GPU's cache, announced by the engine or predicted
   * because a request with that start was sent there. 0 where nothing is known of it: what nobody saw is not there.
   */
  readonly matchedTokens: Float64Array;
  /** Tokens of the prompt beyond `matchedTokens` that the engine keeps in its CPU memory. */
  readonly matchedCpuTokens: Float64Array;
  /** Those beyond them that it keeps on disk. */
  readonly matchedDiskTokens: Float64Array;
  /** Those beyond them that it can fetch from a pool outside. */
  readonly matchedExternalTokens: Float64Array;
  /** Of `matchedExternalTokens` those that the engine never said it had: a pool that it can fetch from says so. */
  readonly matchedPoolTokens: Float64Array;
  /** Milliseconds since the prediction behind the match was made. NaN when the engine itself announced the blocks. */
  readonly matchAgeMs: Float64Array;
  /** Tokens that the engine's cache is believed to hold in all, whoever they belong to. */
  readonly heldTokens: Float64Array;
  /**
   * 1 where this router, of all that decide at the same time, is the one that should send what could as well go elsewhere;
   * 0 where another one is, or nobody.
   */
  readonly own: Float64Array;
  /** Milliseconds until the prompts that were sent here before are computed, as predicted. NaN where nothing is learned. */
  readonly backlogMs: Float64Array;
  /** Milliseconds that the engine computes on one prompt token, as learned. NaN where nothing is learned. */
  readonly prefillMsPerToken: Float64Array;
  /** Milliseconds more for each token before it that a prompt token attends to, as learned. NaN where nothing is. */
  readonly prefillMsPerTokenPair: Float64Array;
  /**
   * Milliseconds that the engine takes to bring a token back to its GPU from its CPU memory, as learned. NaN where nothing
   * is.
   */
  readonly cpuFetchMsPerToken: Float64Array;
  /** The same from its disk. */
  readonly diskFetchMsPerToken: Float64Array;
  /** The same from a pool outside. */
  readonly externalFetchMsPerToken: Float64Array;
  /** How the candidate stands to the LoRA adapter of the request: see `adapterState`. NaN where nothing is known. */
  readonly adapterState: Float64Array;
  /** Forgets every candidate and keeps the memory. */
  reset(): void;
  /**
   * Adds a candidate without engine signals or matches, idle and of weight 1; the caller then writes what it knows into
   * the arrays.
   *
   * @returns its index
   * @throws EspalierError `internal_error` beyond `maxCandidates`
   */
  add(key: string, target: number): number;
}

/** The columns of numbers and what an untouched entry holds. */
const columnDefaults = {
  weight: 1,
  inFlight: 0,
  pendingPrefillTokens: 0,
  decodeTokens: 0,
  activeTokens: 0,
  newActiveTokens: Number.NaN,
  running: Number.NaN,
  waiting: Number.NaN,
  kvUse: Number.NaN,
  kvCapacityTokens: Number.NaN,
  batchLimit: Number.NaN,
  signalAgeMs: Number.NaN,
  inFlightAtSignal: Number.NaN,
  matchedTokens: 0,
  matchedCpuTokens: 0,
  matchedDiskTokens: 0,
  matchedExternalTokens: 0,
  matchedPoolTokens: 0,
  matchAgeMs: Number.NaN,
  heldTokens: Number.NaN,
  own: 0,
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

/** All columns in one buffer, one behind the other, and what it holds when nobody has been added. */
interface Storage {
  readonly values: Float64Array;
  readonly untouched: Float64Array;
  readonly columns: Columns;
}

/** @param capacity how many candidates fit before the arrays double */
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
      // Entries that nobody has added hold the defaults, so that adding one need not write them column by column.
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

/** A cache line between columns: without it all entries of one candidate would compete for the same places of a cache. */
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
