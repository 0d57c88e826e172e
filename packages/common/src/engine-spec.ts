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

/** What an engine does for a request: prompt processing, token generation, or both. */
export type EngineRole = "both" | "prefill" | "decode";

/** How engines hand the KV blocks of a prompt to each other, by the names that the configuration knows. */
export const kvTransferProtocols = ["nixl", "sglang", "mooncake", "shared-storage", "trtllm", "p2p-nccl"] as const;

export type KvTransferProtocol = (typeof kvTransferProtocols)[number];

/** How an engine takes part in requests that two engines serve together. */
export interface KvTransferSpec {
  readonly protocol: KvTransferProtocol;
  /** Where other engines reach its side of the transfer: the host of its URL when undefined. */
  readonly host: string | undefined;
  /** Port of its bootstrap server or its side of the transfer; undefined for the protocol's usual one. */
  readonly port: number | undefined;
}

/** Where an engine publishes its KV events. */
export interface KvEventsSpec {
  /** `tcp://host:port` of rank 0; rank r has the port r above it. */
  readonly endpoint: string;
  /** Where missed events can be asked for, in the same way. */
  readonly replayEndpoint: string | undefined;
  /** Events whose topic does not start so are not its own. */
  readonly topic: string;
}

/** One engine as a source of discovery describes it. Everything optional is learned from the engine when absent. */
export interface EngineSpec {
  readonly id: EngineId;
  /** `http://host:port` or `https://host:port`, with an optional path prefix and no trailing slash. */
  readonly url: string;
  /** Names of the models it serves; empty means: ask its `/v1/models`. */
  readonly models: readonly string[];
  readonly role: EngineRole;
  /** Relative share of traffic for the policies that know weights; above 0, 1 by default. */
  readonly weight: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Data-parallel ranks that requests are sent to one by one; 1 when absent. */
  readonly ranks?: number;
  /** Undefined to ask the engine. */
  readonly kvEvents?: KvEventsSpec;
  /** Undefined for an engine that serves every request alone. */
  readonly kvTransfer?: KvTransferSpec;
}

/** What a source says of every engine that it finds. What is undefined or empty is learned from the engine. */
export interface EngineTraits {
  readonly scheme: "http" | "https";
  /** Empty to ask the engine. */
  readonly models: readonly string[];
  readonly role: EngineRole;
  /** Relative share of traffic, above 0. */
  readonly weight: number;
  /** Data-parallel ranks that requests are sent to one by one, from 1. */
  readonly ranks: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Port at which rank 0 publishes its KV events; undefined to ask the engine. */
  readonly kvEventsPort: number | undefined;
  /** Port at which missed ones can be asked for. It counts together with `kvEventsPort` only. */
  readonly kvReplayPort: number | undefined;
  /** Only events with a topic that starts so. */
  readonly kvTopic: string;
  /** How it hands KV blocks over; undefined for an engine that serves every request alone. */
  readonly kvTransfer: KvTransferProtocol | undefined;
  /** Port of its side of the transfer; undefined for the protocol's usual one. */
  readonly kvTransferPort: number | undefined;
}
