import type { EngineId } from "./ids.ts";

/** What an engine does for a request: prompt processing, token generation, or both. */
export type EngineRole = "both" | "prefill" | "decode";

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
}
