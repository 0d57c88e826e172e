import { silentLog } from "./cache-log.ts";
import { checkRequest } from "./check-request.ts";
import type { EngineForm } from "./engine-form.ts";
import { createEventLog, type EventLog } from "./event-log.ts";
import type { RequestChain } from "./sequence.ts";
import { TokenChain } from "./token-chain.ts";
import type { EngineObserver, EngineParameters, EngineRequest, ImportedPrompt } from "./types.ts";

interface TokenFormOptions {
  readonly parameters: EngineParameters;
  readonly hashSeed: number;
  readonly observer: EngineObserver;
  readonly log: EventLog;
}

/** A request with its tokens. */
class TokenRequest extends TokenChain implements RequestChain<string> {
  readonly id: string;
  readonly priority: number;
  readonly imported: ImportedPrompt | undefined;
  readonly pinned: boolean;
  readonly outputToken: (index: number) => number;

  constructor(request: EngineRequest, hashSeed: number, blockSize: number) {
    const { promptTokens, outputTokens, adapter, cacheSalt } = request;
    super({ hashSeed, blockSize, promptTokens, outputTokens, adapter, cacheSalt });
    this.id = request.id;
    this.priority = request.priority ?? 0;
    this.imported = request.imported;
    this.pinned = request.pinned ?? false;
    this.outputToken = request.outputToken;
  }
}

/** The log that an observer's form of the engine needs: none when it does not listen to events. */
export function createTokenLog({ flavour, cpuBlocks = 0 }: EngineParameters, observer: EngineObserver): EventLog {
  return observer.events ? createEventLog(flavour, cpuBlocks > 0) : { ...silentLog, take: () => undefined };
}

/** Requests with tokens: every token is made and told of, and every event of the cache. */
export function createTokenForm(options: TokenFormOptions): EngineForm<string, EngineRequest, TokenRequest> {
  const { parameters, hashSeed, observer, log } = options;
  return {
    check({ id, promptTokens, outputTokens, imported }) {
      checkRequest({ id, promptTokens: promptTokens.length, outputTokens, imported }, parameters);
    },
    open: (request) => new TokenRequest(request, hashSeed, parameters.blockSize),
    imported: (chain, tokens, timeMs) => observer.imported?.(chain.id, tokens, timeMs),
    generated(chain, index, timeMs) {
      const token = chain.outputToken(index);
      chain.tokens[chain.promptTokens + index] = token;
      observer.token?.(chain.id, index, token, timeMs);
    },
    quietTokens: () => 0,
    finished: (_chain, report) => observer.finished?.(report),
    nothingToPublish: () => false,
    publish(timeMs) {
      const taken = log.take();
      if (taken) observer.events?.(taken, timeMs);
    },
  };
}
