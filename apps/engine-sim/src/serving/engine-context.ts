import type { Clock, Scheduler } from "@espalier/core";
import type { CacheFlavour } from "@espalier/engine-model";
import type { BehaviourName } from "../behaviours.ts";
import type { AdapterRegistry } from "../engine/adapters.ts";
import type { RequestLog } from "../engine/request-log.ts";
import type { SimulatedEngine } from "../engine/simulated-engine.ts";
import type { EventChannel } from "../event-channel.ts";
import type { FaultTable } from "../faults.ts";
import type { ModelText } from "../text/model-text.ts";
import type { PeerTier } from "../transfer/peer-tier.ts";
import type { Transfers } from "../transfer/transfers.ts";
import type { StoredResponses } from "./stored-responses.ts";

/** A request in flight. */
export interface LiveRequest {
  describe(): Readonly<Record<string, unknown>>;
  /** The id that its client gave it, by which SGLang's clients abort it. */
  readonly rid: string | undefined;
  /** Ends it: the answer has what was generated so far. */
  abort(): void;
  /** Resets its connection, as a crash of the engine does. */
  kill(): void;
}

/** Everything that the routes of one simulated engine share. */
export interface EngineContext {
  /** Unique in this process. */
  readonly id: string;
  readonly flavour: CacheFlavour;
  /** Names of the one model; at least one. */
  readonly models: readonly [string, ...string[]];
  /** LoRA adapters of the first model. */
  readonly adapters: AdapterRegistry;
  readonly engine: SimulatedEngine;
  /** Tokenizer, chat template and vocabulary. */
  readonly text: ModelText;
  /** Behaviours of real releases that are on. */
  readonly behaviours: ReadonlySet<BehaviourName>;
  /** Undefined when it publishes no KV events. */
  readonly kvEvents: EventChannel | undefined;
  /** Undefined when it exchanges no blocks with other engines. */
  readonly transfers: Transfers | undefined;
  /** Undefined when it pulls from no other engines, and none from it. */
  readonly peers: PeerTier | undefined;
  /** Whether events of vLLM's CPU memory describe blocks by their tokens. */
  readonly describesCpuBlocks: boolean;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Mean tokens of an answer without a limit; 0 for answers that always reach their limit. */
  readonly naturalLengthMean: number;
  readonly faults: FaultTable;
  readonly log: RequestLog;
  readonly live: Set<LiveRequest>;
  readonly storedResponses: StoredResponses;
  /** 16 random hexadecimal digits. */
  newId(): string;
  /** Closes the listening socket and all connections, and listens again on the same port after `durationMs`. */
  refuseFor(durationMs: number): void;
}
