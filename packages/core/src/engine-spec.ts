declare const brand: unique symbol;

/** A primitive that carries the name of what it identifies, so that two kinds of id cannot be mixed up. */
type Branded<Value, Name extends string> = Value & { readonly [brand]: Name };

/** Names one inference server process (vLLM, SGLang, TensorRT-LLM); unique within a fleet. */
export type EngineId = Branded<string, "EngineId">;

/**
 * Dense index of a target, an (engine, rank) pair, in this process. Arrays of per-target numbers are indexed by it.
 * It is never sent to another process.
 */
export type TargetIndex = Branded<number, "TargetIndex">;

/** Names one router; unique within a cluster, and the same after a restart. */
export type RouterId = Branded<string, "RouterId">;

/** Brands a text as the id of an engine. The caller must have checked it. */
export const asEngineId = (value: string): EngineId => value as EngineId;
/** Brands a number as the index of a target. The caller must have checked it. */
export const asTargetIndex = (value: number): TargetIndex => value as TargetIndex;
/** Brands a text as the id of a router. The caller must have checked it. */
export const asRouterId = (value: string): RouterId => value as RouterId;

/** What an engine does for a request: prompt processing, token generation, or both. */
export type EngineRole = "both" | "prefill" | "decode";

/** Protocols with which engines transfer the KV blocks of a prompt, by their names in the configuration. */
export const kvTransferProtocols = [
  ...(["nixl", "sglang", "mooncake", "shared-storage", "trtllm", "p2p-nccl"] as const),
  "llm-d-sidecar",
] as const;

export type KvTransferProtocol = (typeof kvTransferProtocols)[number];

/** An engine's role in requests that two engines serve together. */
export interface KvTransferSpec {
  readonly protocol: KvTransferProtocol;
  /** Host of its side of the transfer, for other engines; the host of its URL when undefined. */
  readonly host: string | undefined;
  /** Port of its bootstrap server or its side of the transfer; undefined for the protocol's default. */
  readonly port: number | undefined;
}

/** Ways to tell an engine to fetch KV blocks of a prompt from another engine, by their names in the configuration. */
export const kvPullProtocols = ["p2p", "llm-d-sidecar"] as const;

export type KvPullProtocol = (typeof kvPullProtocols)[number];

/** An engine that fetches KV blocks of prompts from other engines of the same protocol, and lends them its own. */
export interface KvPullSpec {
  readonly protocol: KvPullProtocol;
  /** Host of its side channel, for other engines; the host of its URL when undefined. */
  readonly host: string | undefined;
  /** Port of rank 0's side channel; rank r has the port r above it. Undefined for the protocol's default. */
  readonly port: number | undefined;
}

/** Where an engine publishes its KV events. */
export interface KvEventsSpec {
  /** `tcp://host:port` of rank 0; rank r has the port r above it. */
  readonly endpoint: string;
  /** Endpoint where missed events are replayed, in the same form. */
  readonly replay: string | undefined;
  /** Prefix of the topics of its events. */
  readonly topic: string;
}

/** An engine as discovery describes it. Missing parts are learned from the engine. */
export interface EngineSpec {
  readonly id: EngineId;
  /** `http://host:port` or `https://host:port`, with an optional path prefix and no trailing slash. */
  readonly url: string;
  /** Names of the models it serves; empty to ask its `/v1/models`. */
  readonly models: readonly string[];
  readonly role: EngineRole;
  /** Relative share of traffic in policies that use weights; above 0, 1 by default. */
  readonly weight: number;
  readonly labels: Readonly<Record<string, string>>;
  /** Where it is, in the words of the routers' `mesh.region`. Undefined if that is not known. */
  readonly region?: string | undefined;
  /** Number of data-parallel ranks; each is a target. 1 by default. */
  readonly ranks?: number;
  /** The engine's number of its first rank. Undefined to learn it from the engine. */
  readonly firstRank?: number | undefined;
  /** Undefined to ask the engine. */
  readonly kvEvents?: KvEventsSpec | undefined;
  /** Undefined for an engine that does not serve split requests. */
  readonly kvTransfer?: KvTransferSpec | undefined;
  /** Undefined for an engine that neither fetches blocks from other engines nor lends them its own. */
  readonly kvPull?: KvPullSpec | undefined;
}

/** A source's information about every engine that it finds. Undefined or empty parts are learned from the engine. */
export interface EngineTraits {
  readonly scheme: "http" | "https";
  /** Empty to ask the engine. */
  readonly models: readonly string[];
  readonly role: EngineRole;
  /** Relative share of traffic, above 0. */
  readonly weight: number;
  /** Number of data-parallel ranks, at least 1; each is a target. */
  readonly ranks: number;
  /** The engine's number of its first rank; undefined to learn it from its metrics. */
  readonly firstRank: number | undefined;
  readonly labels: Readonly<Record<string, string>>;
  /** Where the engines are; undefined if that is not known. */
  readonly region: string | undefined;
  /** Port at which rank 0 publishes its KV events; undefined to ask the engine. */
  readonly kvEventsPort: number | undefined;
  /** Port at which missed events are replayed. Used only together with `kvEventsPort`. */
  readonly kvReplayPort: number | undefined;
  /** Prefix of the topics of its events. */
  readonly kvTopic: string;
  /** How it transfers KV blocks; undefined for an engine that does not serve split requests. */
  readonly kvTransfer: KvTransferProtocol | undefined;
  /** Port of its side of the transfer; undefined for the protocol's default. */
  readonly kvTransferPort: number | undefined;
  /** How it fetches KV blocks from other engines; undefined for an engine that does not. */
  readonly kvPull: KvPullProtocol | undefined;
  /** Port of its side channel; undefined for the protocol's default. */
  readonly kvPullPort: number | undefined;
}
