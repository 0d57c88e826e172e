import type { Clock, Scheduler } from "@espalier/common";
import type { CacheFlavour } from "@espalier/engine-model";
import type { StoredResponses } from "../api/responses.ts";
import type { AdapterRegistry } from "../engine/adapters.ts";
import type { RequestLog } from "../engine/request-log.ts";
import type { SimulatedEngine } from "../engine/simulated-engine.ts";
import type { EventChannel } from "../event-channel.ts";
import type { FaultBoard } from "../faults.ts";
import type { ModelText } from "../text/model-text.ts";
import type { Transfers } from "../transfer/transfers.ts";

/** A request that the engine works on. */
export interface LiveRequest {
  describe(): Readonly<Record<string, unknown>>;
  /** Tears its connection down, as the death of the engine's process would. */
  kill(): void;
}

/** Everything that the routes of one simulated engine share. */
export interface EngineContext {
  /** Name among the engines of this process. */
  readonly id: string;
  readonly flavour: CacheFlavour;
  /** Names that the one model goes by; at least one. */
  readonly models: readonly [string, ...string[]];
  /** LoRA adapters of the first model. */
  readonly adapters: AdapterRegistry;
  readonly engine: SimulatedEngine;
  /** How it makes tokens of texts. */
  readonly text: ModelText;
  /** Where its KV events go; undefined when they go nowhere. */
  readonly kvEvents: EventChannel | undefined;
  /** What it has to do with the requests of other engines; undefined when nothing. */
  readonly transfers: Transfers | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Mean number of tokens of an answer that nothing limits; 0 for answers that always reach their limit. */
  readonly naturalLengthMean: number;
  readonly faults: FaultBoard;
  readonly log: RequestLog;
  readonly live: Set<LiveRequest>;
  readonly storedResponses: StoredResponses;
  /** 16 random hexadecimal digits. */
  newId(): string;
  /** Closes the listening socket and all connections, and listens again on the same port after `durationMs`. */
  refuseFor(durationMs: number): void;
}
