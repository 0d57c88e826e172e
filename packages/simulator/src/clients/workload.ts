import type { Clock, Scheduler } from "@espalier/common";

/** Tokens of a block in the simulator: of engines, of the index, and of chains. */
export const blockTokens = 16;

/** One request of a simulated client. Its content is named by chain hashes alone. */
export interface SimRequest {
  /** In order of sending, from 0. */
  readonly index: number;
  /** Names the conversation it belongs to. */
  readonly session: number;
  /** Its place in the conversation, from 0. */
  readonly turn: number;
  /** At least 1. */
  readonly promptTokens: number;
  /** At least 1. Unknown to routers until the answer ends. */
  readonly outputTokens: number;
  /** The client's own bound of the answer, `max_tokens`; absent where it sets none. */
  readonly maxOutputTokens?: number;
  /**
   * Chain hashes of the full blocks of prompt and answer together, two words each, low word first: those of
   * floor((promptTokens + outputTokens) / blockTokens) blocks. May be a view of a longer array.
   */
  readonly chain: Uint32Array;
  /** Class of service, where a scenario mixes several. */
  readonly className?: string;
  /** Its tenant within its class; the session by default. */
  readonly tenant?: string;
  /** The LoRA adapter that it is for. Chains for different adapters have nothing in common. */
  readonly adapter?: string;
}

/** An answer as the client sees it. Times are virtual milliseconds. */
export interface RequestOutcome {
  /** NaN when none came. */
  readonly firstTokenMs: number;
  readonly endMs: number;
  /** Prompt tokens that the engine found in its cache; NaN when it did not answer. */
  readonly cachedTokens: number;
  /** What went wrong, if anything. */
  readonly error: string | undefined;
}

/** What a workload sends its requests to. */
export interface WorkloadDriver {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** @param ended called once, when the answer has ended or failed */
  send(request: SimRequest, ended: (outcome: RequestOutcome) => void): void;
  /** Nothing more will be sent. The run ends when everything is answered. */
  finished(): void;
}

/** Clients, open loop or closed loop. One workload serves one run. */
export interface Workload {
  /** Requests that will be sent in all, as far as that is known before; for progress bars. */
  readonly expectedRequests: number;
  start(driver: WorkloadDriver): void;
}
