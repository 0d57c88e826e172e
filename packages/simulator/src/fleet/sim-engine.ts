import type { Cancel } from "@espalier/common";
import type { BlockChanges, BlockReport, BlockRequest, EngineStats } from "@espalier/engine-model";
import type { BatchMark } from "@espalier/replication";
import type { AdapterReading } from "@espalier/workers";
import type { SimRequest } from "../clients/workload.ts";

/** One message of an engine's KV events. */
export interface EngineMessage extends BatchMark {
  readonly changes: BlockChanges;
}

/** Who waits for an answer. */
export interface AnswerObserver {
  firstToken(timeMs: number): void;
  /** So many tokens more, the first one not counted. */
  progress(tokens: number): void;
  finished(report: BlockReport): void;
  /** What was wanted from another engine is here. */
  imported?(): void;
  /** The engine is gone. */
  lost(): void;
}

/** What a router tells an engine of a request besides what the client does: of its other leg, and where it stands. */
export type LegWishes = Pick<BlockRequest, "imported" | "pinned" | "priority">;

/** An engine of the simulated fleet: the model of one, driven by the virtual scheduler, with its KV events. */
export interface SimEngine {
  /** From 0. */
  readonly number: number;
  /** Of its only target. */
  readonly key: string;
  readonly isUp: boolean;
  /** Processes that it has been; 1 at first. */
  readonly lives: number;
  /** KV tokens that it holds. */
  readonly kvTokens: number;
  stats(): EngineStats;
  /** What its metrics say of LoRA adapters; undefined before its first request for one. */
  adapterReading(): AdapterReading | undefined;
  /** LoRA adapters that it has loaded, in all its lives; NaN before its first request for one. */
  readonly adapterLoads: number;
  /** @returns false when it is gone: the connection is refused */
  submit(request: SimRequest, observer: AnswerObserver, wishes?: LegWishes): boolean;
  /** Gives back the blocks of a request that was to be pinned. Nothing happens when it has none. */
  release(request: SimRequest): void;
  /** The connection of a request is closed; its observer hears nothing more. */
  abort(request: SimRequest): void;
  /** Messages of the present life in order of their sequence, from 0. Each life has a list of its own. */
  readonly messages: readonly EngineMessage[];
  /** Messages before this sequence are not told again: engines keep only the last ones for replay. */
  readonly firstReplayed: number;
  /** Told of each message when the engine publishes it; whoever reads over a wire adds the wire's delay. */
  onMessage(listener: (message: EngineMessage) => void): Cancel;
  /** Told when a new life has begun, or the old one has ended. */
  onLife(listener: () => void): Cancel;
  /** Its steps take so many times as long, in this life and in later ones; 1 is as at first. */
  slow(factor: number): void;
  kill(): void;
  start(): void;
}
