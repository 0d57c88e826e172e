import { createLoop, type EngineFrontend, type LoopEngine } from "./engine-loop.ts";
import { partialGroupsOf } from "./hybrid-cache.ts";
import { type CacheLog, type HashChain, silentLog } from "./kv-cache.ts";
import type { RemoteSource } from "./kv-pull.ts";
import type { RequestChain } from "./sequence.ts";
import type { EngineParameters, ImportedPrompt, RequestReport } from "./types.ts";
import { checkParameters, checkRequest } from "./validation.ts";

/** A request whose content is named by chain hashes alone. */
export interface BlockRequest {
  readonly id: number;
  /** At least 1. */
  readonly promptTokens: number;
  /** Tokens that will be generated unless the request is aborted; at least 1. */
  readonly outputTokens: number;
  /**
   * Chain hashes of all full blocks of prompt and output together, two words each, low word first; further words are
   * ignored. Two chains share their first hashes as far as their contents are the same, and no hash occurs at two
   * depths. The engine reads the array until the request is finished.
   */
  readonly chain: Uint32Array;
  /** Lower goes first; equal priorities go in order of arrival. 0 by default. */
  readonly priority?: number;
  /** Imported KV, as with `EngineRequest`. */
  readonly imported?: ImportedPrompt;
  /** Another engine's CPU memory, as with `EngineRequest`. */
  readonly remote?: RemoteSource;
  /** Whether its blocks stay pinned after the full output, until `release`. */
  readonly pinned?: boolean;
  /** The requested LoRA adapter. Chains for different adapters must not share hashes. */
  readonly adapter?: string;
}

export type BlockReport = Omit<RequestReport, "id"> & { readonly id: number };

/** Receives the results of a block engine while time advances, at the same moments as an `EngineObserver`. */
export interface BlockEngineObserver {
  firstToken?(id: number, timeMs: number): void;
  /** `tokens` more output tokens since the last call; the first token is not counted. The remainder is reported before `finished`. */
  progress?(id: number, tokens: number, timeMs: number): void;
  finished?(report: BlockReport): void;
  /** The imported KV of a request has arrived, as with `EngineObserver`. */
  imported?(id: number, tokens: number, timeMs: number): void;
  /** Block changes of one step. Without this method the engine does not collect them. */
  blocks?(changes: BlockChanges, timeMs: number): void;
}

/**
 * An `Engine` whose requests carry hashes and whose observer receives block changes. It skips steps that an observer would
 * not notice: `nextEventMs` is the end of the next step with something to report, unless a request is submitted or aborted
 * before.
 */
export type BlockEngine = LoopEngine<number, BlockRequest>;

/**
 * Kinds of runs in `BlockChanges`. `offloaded` blocks are copied to CPU memory; `discarded` blocks leave it. `pooled` blocks
 * are copied to a pool outside the engines; `dropped` blocks leave it.
 */
export const blockChange = {
  stored: 0,
  removed: 1,
  cleared: 2,
  offloaded: 3,
  discarded: 4,
  pooled: 5,
  dropped: 6,
} as const;

/**
 * Net changes of an engine's reusable blocks, in order. Run `i` covers blocks `ends[i - 1]` (0 for the first run) to
 * `ends[i]` (exclusive) of `words`; a run that clears covers none. A receiver may keep the arrays, but must not write
 * to them.
 */
export interface BlockChanges {
  readonly runs: number;
  /** One of `blockChange` per run. */
  readonly kinds: Uint8Array;
  readonly ends: Uint32Array;
  /** Chain hashes, two words each, as the requests gave them. */
  readonly words: Uint32Array;
}

export interface BlockEngineOptions {
  readonly parameters: EngineParameters;
  readonly observer: BlockEngineObserver;
  /** Output tokens per progress report, at most; 16 by default. */
  readonly progressTokens?: number;
}

/**
 * One LLM engine in virtual time, for requests without tokens. It schedules, times, caches and evicts with the code of
 * `createEngine`, and the same calls give the same results.
 *
 * @throws RangeError when a parameter makes no sense
 */
export function createBlockEngine(options: BlockEngineOptions): BlockEngine {
  const { parameters, observer, progressTokens = 16 } = options;
  checkParameters(parameters);
  if (partialGroupsOf(parameters).length > 0) {
    throw new RangeError("an engine without tokens has no hybrid model: windowTokens and stateGroups must be 0");
  }
  if (!(Number.isSafeInteger(progressTokens) && progressTokens >= 1)) {
    throw new RangeError(`progressTokens ${progressTokens} is not a whole number > 0`);
  }
  const log = observer.blocks ? createChangeLog() : { ...silentLog, isEmpty: () => true, take: () => undefined };
  return createLoop(parameters, createBlockFrontend({ parameters, observer, log, progressTokens }), log);
}

/**
 * Frontend for requests with hashes. Tokens are reported when their position is a multiple of `progressTokens`. If that is
 * the block size, the block before them becomes reusable in the same step, so one step reports both.
 */
function createBlockFrontend(options: BlockFrontendOptions): EngineFrontend<number, BlockRequest, HashedRequest> {
  const { parameters, observer, log, progressTokens } = options;
  const { blockSize } = parameters;

  const reportProgress = (request: HashedRequest, index: number, timeMs: number): void => {
    if (index <= request.reportedIndex) return;
    observer.progress?.(request.id, index - request.reportedIndex, timeMs);
    request.reportedIndex = index;
  };
  return {
    check(request) {
      const { id, promptTokens, outputTokens, chain } = request;
      if (!Number.isInteger(promptTokens) || promptTokens < 0) {
        throw new RangeError(`request ${id}: promptTokens ${promptTokens} is not a whole number`);
      }
      checkRequest(request, parameters);
      const words = 2 * Math.floor((promptTokens + outputTokens) / blockSize);
      if (chain.length < words) throw new RangeError(`request ${id}: a chain of ${chain.length} words, not ${words}`);
    },
    open: (request) => new HashedRequest(request),
    imported: (request, tokens, timeMs) => observer.imported?.(request.id, tokens, timeMs),
    generated(request, index, timeMs) {
      if (index === 0) observer.firstToken?.(request.id, timeMs);
      else if ((request.promptTokens + index) % progressTokens === 0) reportProgress(request, index, timeMs);
    },
    quietTokens: (knownTokens) => progressTokens - 1 - ((knownTokens + progressTokens - 1) % progressTokens),
    finished(request, report) {
      reportProgress(request, report.outputTokens - 1, report.finishedMs);
      observer.finished?.(report);
    },
    nothingToPublish: log.isEmpty,
    publish(timeMs) {
      const taken = log.take();
      if (taken) observer.blocks?.(taken, timeMs);
    },
  };
}

interface BlockFrontendOptions {
  readonly parameters: EngineParameters;
  readonly observer: BlockEngineObserver;
  readonly log: ChangeLog;
  /** Output tokens per progress report, at most. */
  readonly progressTokens: number;
}

/** A request with its hashes. */
class HashedRequest implements RequestChain<number> {
  readonly id: number;
  readonly priority: number;
  readonly promptTokens: number;
  readonly totalTokens: number;
  readonly hashes: Uint32Array;
  readonly adapter: string | undefined;
  readonly imported: ImportedPrompt | undefined;
  readonly remote: RemoteSource | undefined;
  readonly pinned: boolean;
  /** Index of the last output token that was reported. */
  reportedIndex = 0;

  constructor(request: BlockRequest) {
    const { id, priority = 0, promptTokens, outputTokens, chain, adapter, imported, remote, pinned = false } = request;
    this.id = id;
    this.priority = priority;
    this.promptTokens = promptTokens;
    this.totalTokens = promptTokens + outputTokens;
    this.hashes = chain;
    this.adapter = adapter;
    this.imported = imported;
    this.remote = remote;
    this.pinned = pinned;
  }

  hashBlocks(): void {}
}

/** Collects net changes of reusable blocks between two publications. */
interface ChangeLog extends CacheLog<HashChain> {
  readonly isEmpty: () => boolean;
  /** Returns the collected changes and starts over; undefined when there are none. */
  take(): BlockChanges | undefined;
}

/** Initial capacities. One step cannot change more than all blocks of an engine, twice. */
const FIRST_RUNS = 16;

const FIRST_WORDS = 512;

/** @param copies the kinds of copies outside KV memory: those of CPU memory unless given */
export function createChangeLog(
  copies: { readonly copied: number; readonly left: number } = {
    copied: blockChange.offloaded,
    left: blockChange.discarded,
  },
): ChangeLog {
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
    stored: (chain, from, to) => add(blockChange.stored, chain.hashes, 2 * from, 2 * to),
    removed: (hashes) => add(blockChange.removed, hashes, 0, hashes.length),
    cleared: () => add(blockChange.cleared, words, 0, 0),
    offloaded: (hashes) => add(copies.copied, hashes, 0, hashes.length),
    discarded: (hashes) => add(copies.left, hashes, 0, hashes.length),
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
