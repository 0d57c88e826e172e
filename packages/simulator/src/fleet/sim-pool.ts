import { asTargetIndex, type Cancel, type Clock, type Scheduler } from "@espalier/core";
import {
  type BlockChanges,
  type BlockRequest,
  createKvPool,
  type EngineParameters,
  type KvPool,
  type KvPoolSettings,
  type RemoteSource,
} from "@espalier/engine-model";
import type { PoolReach } from "@espalier/routing";
import { EventLog, type EventSource, ListenerSet, ModelTimer } from "./sim-engine.ts";

/** A pool of a fleet, and the size of what is in it. */
export interface SimPoolSettings extends KvPoolSettings {
  readonly bytesPerToken: number;
}

interface SimPoolOptions extends SimPoolSettings {
  /** The number of the target in routers' indices, after those of the engines. */
  readonly number: number;
  readonly parameters: Pick<EngineParameters, "blockSize" | "prefillMsPerToken">;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Whether messages are kept for later subscribers. */
  readonly keepsMessages: boolean;
}

/** A pool of KV blocks that all engines of a fleet use, with its KV events. It outlives the engines. */
export class SimPool implements EventSource, Pick<KvPool, "sourceFor"> {
  readonly number: number;
  readonly key = "pool";
  readonly isUp = true;
  readonly epochs = 1;
  /** Every engine can read from it. */
  readonly reach: PoolReach;
  readonly #log: EventLog;
  readonly #pool: KvPool;
  readonly #epochListeners = new ListenerSet<void>();

  constructor(options: SimPoolOptions) {
    const { number, parameters, clock, scheduler, keepsMessages, ...settings } = options;
    this.number = number;
    const pools = [{ name: this.key, index: asTargetIndex(number) }];
    this.reach = { poolsOf: () => pools };
    this.#log = new EventLog({ clock, keepsMessages });
    this.#pool = createKvPool({
      ...settings,
      blockSize: parameters.blockSize,
      computeMsPerToken: parameters.prefillMsPerToken,
      onChanges: (changes) => this.#log.publish(this.epochs, changes, clock.nowMs()),
      changed: () => timer.reschedule(),
    });
    const timer = new ModelTimer({ clock, scheduler }, this.#pool);
  }

  get messages() {
    return this.#log.messages;
  }

  get firstReplayed(): number {
    return this.#log.firstReplayed;
  }

  /** Copies what an engine has stored. */
  write(changes: BlockChanges): void {
    this.#pool.write(changes);
  }

  sourceFor(request: BlockRequest, engine: string): RemoteSource {
    return this.#pool.sourceFor(request, engine);
  }

  onMessage(listener: Parameters<EventSource["onMessage"]>[0]): Cancel {
    return this.#log.onMessage(listener);
  }

  onEpoch(listener: () => void): Cancel {
    return this.#epochListeners.add(listener);
  }
}
