import type { RequestChain } from "./sequence.ts";
import type { RequestReport } from "./types.ts";

/**
 * In what form requests come to an engine, with tokens or with hashes, and what its observer hears of them. The loop
 * knows nothing else of either.
 */
export interface EngineForm<Id, Request extends { readonly id: Id }, Chain extends RequestChain<Id>> {
  /** @throws RangeError when the engine could never serve the request */
  check(request: Request): void;
  open(request: Request): Chain;
  /** So many tokens that a request wanted from outside are here. */
  imported(chain: Chain, tokens: number, timeMs: number): void;
  /** A step gave the token at `index` of the output. */
  generated(chain: Chain, index: number, timeMs: number): void;
  /** How many tokens from position `knownTokens` on, none of them the first of an output, need not be told of. */
  quietTokens(knownTokens: number): number;
  finished(chain: Chain, report: Omit<RequestReport, "id"> & { readonly id: Id }): void;
  /** Whether `publish` would tell nothing. */
  nothingToPublish(): boolean;
  /** Tells of the blocks that came and went. */
  publish(timeMs: number): void;
}
