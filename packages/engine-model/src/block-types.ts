import type { BlockChanges } from "./block-changes.ts";
import type { LoopEngine } from "./create-loop.ts";
import type { ImportedPrompt, RequestReport } from "./types.ts";

/** A request whose content is named by chain hashes alone. */
export interface BlockRequest {
  readonly id: number;
  /** At least 1. */
  readonly promptTokens: number;
  /** Tokens that will be generated unless the request is aborted; at least 1. */
  readonly outputTokens: number;
  /**
   * Chain hashes of all full blocks of prompt and output together, two words each, low word first; further words are
   * ignored. Chains share their first hashes as far as their contents begin alike, and no hash stands at two depths.
   * The engine reads the array until the request is finished.
   */
  readonly chain: Uint32Array;
  /** Lower goes first; equal priorities go in order of arrival. 0 by default. */
  readonly priority?: number;
  /** What comes from outside, as with `EngineRequest`. */
  readonly imported?: ImportedPrompt;
  /** Whether its blocks stay held after an output of full length until `release`. */
  readonly pinned?: boolean;
  /** The LoRA adapter that it is for. Chains for different adapters must have nothing in common. */
  readonly adapter?: string;
}

export type BlockReport = Omit<RequestReport, "id"> & { readonly id: number };

/** What a block engine tells while time advances; when, is as with `EngineObserver`. */
export interface BlockEngineObserver {
  firstToken?(id: number, timeMs: number): void;
  /** So many tokens more since the last call, the first one of the output not counted. What is left comes before `finished`. */
  progress?(id: number, tokens: number, timeMs: number): void;
  finished?(report: BlockReport): void;
  /** What a request wanted from outside is here, as with `EngineObserver`. */
  imported?(id: number, tokens: number, timeMs: number): void;
  /** What changed in one step. Without it the engine is spared the work of collecting that. */
  blocks?(changes: BlockChanges, timeMs: number): void;
}

/**
 * An engine like `Engine` in everything, but for what requests carry and observers hear. It passes over steps that
 * change nothing an observer hears of: `nextEventMs` is the end of the next step that does, as long as nothing is handed
 * in or dropped before.
 */
export type BlockEngine = LoopEngine<number, BlockRequest>;
