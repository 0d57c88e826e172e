import type { BlockEngineObserver, BlockRequest } from "./block-types.ts";
import type { ChangeLog } from "./change-log.ts";
import { checkRequest } from "./check-request.ts";
import type { EngineForm } from "./engine-form.ts";
import type { RequestChain } from "./sequence.ts";
import type { EngineParameters, ImportedPrompt } from "./types.ts";

interface BlockFormOptions {
  readonly parameters: EngineParameters;
  readonly observer: BlockEngineObserver;
  readonly log: ChangeLog;
  /** Tokens of an output that are told of together, at most. */
  readonly progressTokens: number;
}

/** A request with its hashes. */
class HashedRequest implements RequestChain<number> {
  readonly id: number;
  readonly priority: number;
  readonly promptTokens: number;
  readonly totalTokens: number;
  readonly lanes: Uint32Array;
  readonly adapter: string | undefined;
  readonly imported: ImportedPrompt | undefined;
  readonly pinned: boolean;
  /** Index of the last token of the output that the observer knows of. */
  toldIndex = 0;

  constructor(request: BlockRequest) {
    const { id, priority = 0, promptTokens, outputTokens, chain, adapter, imported, pinned = false } = request;
    this.id = id;
    this.priority = priority;
    this.promptTokens = promptTokens;
    this.totalTokens = promptTokens + outputTokens;
    this.lanes = chain;
    this.adapter = adapter;
    this.imported = imported;
    this.pinned = pinned;
  }

  hashBlocks(): void {}
}

/**
 * Requests with hashes: tokens are told of when their position is a multiple of `progressTokens`. With the size of a
 * block, that is when the block before them becomes reusable, so that one step tells both.
 */
export function createBlockForm(options: BlockFormOptions): EngineForm<number, BlockRequest, HashedRequest> {
  const { parameters, observer, log, progressTokens } = options;
  const { blockSize } = parameters;

  const tellProgress = (request: HashedRequest, index: number, timeMs: number): void => {
    if (index <= request.toldIndex) return;
    observer.progress?.(request.id, index - request.toldIndex, timeMs);
    request.toldIndex = index;
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
      else if ((request.promptTokens + index) % progressTokens === 0) tellProgress(request, index, timeMs);
    },
    quietTokens: (knownTokens) => progressTokens - 1 - ((knownTokens + progressTokens - 1) % progressTokens),
    finished(request, report) {
      tellProgress(request, report.outputTokens - 1, report.finishedMs);
      observer.finished?.(report);
    },
    nothingToPublish: log.isEmpty,
    publish(timeMs) {
      const taken = log.take();
      if (taken) observer.blocks?.(taken, timeMs);
    },
  };
}
