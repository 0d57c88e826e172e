import type { EngineSpec, KvEventsSpec } from "@espalier/common";
import type { DiscoveryConfig } from "./discovery-config.ts";
import type { MeshConfig } from "./mesh-config.ts";
import type { Fingerprints } from "./reload.ts";
import type { ConfigTree } from "./schema/config-schema.ts";
import type { Secret } from "./secret.ts";
import type { TracingConfig } from "./tracing-config.ts";

/** Paths of PEM files of a listener. With `caFile`, clients must present a certificate. */
export interface ListenerTls {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string | undefined;
}

export interface ApiKey {
  readonly name: string;
  /** SHA-256 of the key: 32 bytes. */
  readonly sha256: Buffer;
}

/** A policy by name. Options that were not written are absent: the policy knows its defaults. */
export interface PolicyConfig {
  readonly name: string;
  readonly options: Readonly<Record<string, number | string>>;
}

export interface PoolConfig {
  /** Names of models, in which `*` stands for any run of characters. */
  readonly models: readonly string[];
  readonly policy: PolicyConfig;
  readonly engineApiKey: Secret | undefined;
  readonly forwardAuthorization: boolean;
}

export interface TokenizerConfig {
  /** Names of models, in which `*` stands for any run of characters. */
  readonly models: readonly string[];
  readonly mode: "local" | "engine" | "bytes";
  /** Whose rules turn chats into prompts; `auto` for those of the engines that serve the model. */
  readonly engine: "auto" | "vllm-0.23" | "vllm-0.32" | "sglang-0.5.23";
  /** Folder of the model's files; there is one with `local`. */
  readonly path: string | undefined;
}

/** A pool of KV blocks outside the engines, and which engines fetch from it. */
export interface KvPoolConfig {
  readonly name: string;
  /** One stream of events: `endpoint` and `replayEndpoint` are those of the pool, whatever the rank. */
  readonly events: KvEventsSpec;
  /** Names of models, in which `*` stands for any run of characters: an engine in reach serves one of them, */
  readonly models: readonly string[];
  /** and has all of these labels. */
  readonly labels: Readonly<Record<string, string>>;
}

export interface WeightedModel {
  readonly model: string;
  /** Relative share. At least one side of a split is above 0. */
  readonly weight: number;
}

/** A place to look for a session key. Names of headers are in lower case. */
export interface SessionKeySource {
  readonly from: "header" | "body";
  readonly name: string;
}

/** Which end of a body's `priority` goes first, where it counts at all. */
export type PriorityDirection = "off" | "lower-first" | "higher-first";

/** Who waits while engines are busy. */
export interface AdmissionConfig {
  readonly isOn: boolean;
  /** The highest first. */
  readonly classes: readonly {
    readonly name: string;
    readonly order: "fcfs" | "edf" | "shortest_prefill";
    /** They add up to 1 at most. */
    readonly share: number;
    readonly targetMs: number | undefined;
    readonly onMiss: "reject" | "demote";
    readonly maxPendingTokens: number;
    readonly yields: boolean;
    readonly patienceMs: number;
  }[];
  readonly defaultClass: string;
  readonly between: "strict" | "deficit";
  readonly maxQueued: number;
  readonly maxQueuedBytes: number;
  readonly maxWaiting: number;
  readonly maxKvUse: number;
  /** Whether a header may name another tenant than the key that a request came with. */
  readonly trustsTenantHeader: boolean;
  readonly bodyPriority: PriorityDirection;
  readonly enginePriority: PriorityDirection;
  readonly engineOrder: "arrival" | "shortest";
}

/** The configuration as the router uses it: checked, complete, in the units that the names say. */
export interface CompiledConfig {
  /** There is a file, and it says nothing at all. */
  readonly isFileBlank: boolean;
  /** Routers that share the clients' port, each a process; `auto` for one per core. */
  readonly processes: number | "auto";
  /** Longest time that a router exercises its own code before it is ready; 0 for none of it. */
  readonly warmUpMs: number;
  readonly listen: { readonly host: string; readonly port: number; readonly tls: ListenerTls | undefined };
  readonly admin: {
    readonly host: string;
    readonly port: number;
    readonly tls: ListenerTls | undefined;
    /** Origin by which browsers reach it: scheme, host and port. */
    readonly advertise: string | undefined;
    /** SHA-256 of the admin key: 32 bytes. Undefined leaves the admin listener open, on a loopback address only. */
    readonly keySha256: Buffer | undefined;
    readonly hasDashboard: boolean;
  };
  /** Empty leaves the router open. */
  readonly apiKeys: readonly ApiKey[];
  /** Of pages in browsers that may call the API; `*` stands for all. */
  readonly corsOrigins: readonly string[];
  readonly engines: readonly EngineSpec[];
  /** A file for `parseEnginesFile`. */
  readonly enginesFile: string | undefined;
  readonly discovery: DiscoveryConfig;
  readonly engineTls: {
    readonly caFile: string | undefined;
    readonly certFile: string | undefined;
    readonly keyFile: string | undefined;
    readonly verify: boolean;
  };
  readonly policy: PolicyConfig;
  readonly sessionKey: readonly SessionKeySource[];
  /** The first with a matching pattern counts; a model that none matches has `policy` and no credentials. */
  readonly pools: readonly PoolConfig[];
  readonly admission: AdmissionConfig;
  /** Uncached prompt tokens from which on two engines share a request. */
  readonly disaggregation: {
    /** Undefined to find it for each request, between the bounds. */
    readonly fixedTokens: number | undefined;
    readonly minTokens: number;
    readonly maxTokens: number;
    /** Whether engines of role `both` keep to one side each, as many as the mix of requests asks for. */
    readonly appliesRoleBalance: boolean;
  };
  readonly models: {
    readonly aliases: Readonly<Record<string, string>>;
    readonly splits: Readonly<Record<string, readonly WeightedModel[]>>;
    /** LoRA adapters that engines are told to load: the model that each is for, and where engines find it. */
    readonly adapters: Readonly<Record<string, { readonly model: string; readonly path: string }>>;
    /** How many of them an engine has loaded at once. */
    readonly maxLoaded: number;
  };
  /** How prompts become tokens: the first with a matching pattern counts. */
  readonly tokenizers: readonly TokenizerConfig[];
  readonly tokenize: { readonly budgetMs: number; readonly threads: number; readonly cacheBytes: number };
  readonly prefix: {
    /** Tokens. */
    readonly blockSize: number;
    readonly seed: string;
    readonly placementTtlMs: number;
    /** Capacity of an engine whose metrics do not tell it. */
    readonly placementTokens: number;
  };
  readonly kvEvents: {
    readonly mode: "auto" | "off";
    /** ZeroMQ endpoint for engines that dial. */
    readonly listen: string | undefined;
    readonly maxReplays: number;
  };
  readonly kvPools: readonly KvPoolConfig[];
  readonly mesh: MeshConfig;
  readonly tracing: TracingConfig;
  /** Paths, each of which may end in `*`. */
  readonly forwardPaths: readonly string[];
  readonly injectUsage: boolean;
  readonly trustTransferFields: boolean;
  readonly health: {
    readonly path: string;
    readonly intervalMs: number;
    readonly timeoutMs: number;
    readonly downAfter: number;
    readonly upAfter: number;
    /** Share of a model's engines that have to be up; with fewer, those that are down are tried. 0 is never. */
    readonly panicThreshold: number;
  };
  readonly scrape: {
    readonly path: string;
    /** Undefined where nothing is said: then it is as policies need it. */
    readonly intervalMs: number | undefined;
    readonly timeoutMs: number;
  };
  readonly breaker: {
    readonly consecutiveFailures: number;
    readonly failureShare: number;
    readonly windowRequests: number;
    readonly windowMs: number;
    readonly openMs: number;
    readonly maxOpenMs: number;
    readonly successesToClose: number;
    readonly maxEjectedShare: number;
  };
  readonly retry: {
    readonly budgetRatio: number;
    readonly budgetMinimum: number;
    readonly statuses: readonly number[];
  };
  readonly timeouts: {
    readonly connectMs: number;
    readonly firstByteMs: number;
    readonly answerMs: number | undefined;
    readonly idleMs: number;
    readonly clientWriteMs: number;
    readonly engineKeepAliveMs: number;
    readonly requestReceiveMs: number;
    readonly keepAliveMs: number;
  };
  readonly limits: {
    readonly maxBodyBytes: number;
    readonly maxHeaderBytes: number;
    readonly maxNesting: number;
    readonly maxConcurrentRequests: number;
    readonly maxBodyBytesInFlight: number;
    readonly maxConnections: number;
    readonly maxConnectionsPerEngine: number;
    readonly maxQueuedPerEngine: number;
    readonly maxEventLoopDelayMs: number;
    readonly maxHeapShare: number;
    readonly maxMeshBufferBytes: number;
  };
  readonly drain: { readonly delayMs: number; readonly graceMs: number };
  readonly log: { readonly level: "debug" | "info" | "warn" | "error"; readonly format: "json" | "pretty" };
  /** What is allowed but probably not meant, in sentences. */
  readonly warnings: readonly string[];
  /** The configuration in the form of the file, with every default filled in and secrets masked. */
  readonly effective: ConfigTree;
  /** For `changedPaths`. */
  readonly fingerprints: Fingerprints;
}
