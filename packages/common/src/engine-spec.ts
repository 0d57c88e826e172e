import type { EngineId } from "./ids.ts";

/** What an engine does for a request: prompt processing, token generation, or both. */
export type EngineRole = "both" | "prefill" | "decode";

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
}
