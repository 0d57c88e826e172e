declare const brand: unique symbol;

/** A primitive that carries the name of what it identifies, so that two kinds of id cannot be mixed up. */
export type Branded<Value, Name extends string> = Value & { readonly [brand]: Name };

/** Names one inference server process (vLLM, SGLang, TensorRT-LLM); unique within a fleet. */
export type EngineId = Branded<string, "EngineId">;

/**
 * Dense index of a target, an (engine, rank) pair, in this process. Arrays of per-target numbers are indexed by it.
 * It is never sent to another process.
 */
export type TargetIndex = Branded<number, "TargetIndex">;

/** Names one router replica; unique within a cluster, and the same in every life of that replica. */
export type RouterId = Branded<string, "RouterId">;

/** Takes a text for the id of an engine; whoever calls it vouches for that. */
export const asEngineId = (value: string): EngineId => value as EngineId;
/** Takes a number for the index of a target; whoever calls it vouches for that. */
export const asTargetIndex = (value: number): TargetIndex => value as TargetIndex;
/** Takes a text for the id of a router; whoever calls it vouches for that. */
export const asRouterId = (value: string): RouterId => value as RouterId;
