import type { Clock, Scheduler } from "@espalier/core";

/** Tokens per block in the simulator: in engines, in the index and in chains. */
export const blockTokens = 16;

/** One request of a simulated client. Chain hashes alone identify its content. */
export interface SimRequest {
  /** In order of sending, from 0. */
  readonly index: number;
  /** Names the conversation it belongs to. */
  readonly session: number;
  /** Its place in the conversation, from 0. */
  readonly turn: number;
  /** At least 1. */
  readonly promptTokens: number;
  /** At least 1. Routers do not know it until the answer ends. */
  readonly outputTokens: number;
  /** The client's limit for the answer, `max_tokens`; absent when the client sets none. */
  readonly maxOutputTokens?: number;
  /**
   * Chain hashes of the full blocks of prompt and answer together, two words each, low word first: floor((promptTokens
   * + outputTokens) / blockTokens) blocks. May be a view of a longer array.
   */
  readonly chain: Uint32Array;
  /** Class of service, in scenarios with several. */
  readonly className?: string;
  /** Its tenant within its class; all requests without one are one tenant, as without API keys. */
  readonly tenant?: string;
  /** Where the client is: a number of the topology's regions, the same for a whole session; drawn by its shares when absent. */
  readonly region?: number;
  /** Its client ends the session after the answer, as rollouts do. */
  readonly endsSession?: boolean;
  /** The group of its session, whose sessions begin together and are waited for together. */
  readonly group?: number;
  /** The requested LoRA adapter. Chains for different adapters share no hash. */
  readonly adapter?: string;
}

/** An answer as the client sees it. Times are virtual milliseconds. */
export interface RequestOutcome {
  /** NaN when there was none. */
  readonly firstTokenMs: number;
  readonly endMs: number;
  /** Prompt tokens that the engine found in its cache; NaN when it did not answer. */
  readonly cachedTokens: number;
  /** The failure, if any. */
  readonly error: string | undefined;
}

/** Receives the requests of a workload. */
export interface WorkloadDriver {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** @param ended called once, when the answer has ended or failed */
  send(request: SimRequest, ended: (outcome: RequestOutcome) => void): void;
  /** Announces the end of sending. The run ends when every request is answered. */
  finished(): void;
}

/** Clients, open loop or closed loop. One workload serves one run. */
export interface Workload {
  /** Expected total of requests, if known in advance; for progress bars. */
  readonly expectedRequests: number;
  start(driver: WorkloadDriver): void;
}
