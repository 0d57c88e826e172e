import {
  type Admission,
  createAdmission,
  createAdmissionMeters,
  noFleetUsage,
  noOthersLoad,
  type OthersLoad,
} from "@espalier/admission";
import type { Clock, Meter, Scheduler } from "@espalier/common";
import type { AdmissionConfig } from "@espalier/config";
import type { Target } from "@espalier/workers";
import type { PoolSettings } from "../routing/pools.ts";

/** The queues of all pools. */
export interface AdmissionParts {
  readonly config: AdmissionConfig;
  /** The queue of a pool, made on first use; undefined where admission is off. Pools are bounded, so queues are. */
  of(pool: PoolSettings): Admission<Target> | undefined;
}

export interface AdmissionPartsOptions {
  readonly config: AdmissionConfig;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  /** What other routers have sent; undefined when nothing is shared. */
  readonly others: OthersLoad | undefined;
}

/** @throws RangeError for a configuration that was not checked */
export function createAdmissionParts(options: AdmissionPartsOptions): AdmissionParts {
  const { config, clock, scheduler, meter, others = noOthersLoad } = options;
  const queues = new WeakMap<PoolSettings, Admission<Target>>();
  const meters = createAdmissionMeters(meter);
  const create = (): Admission<Target> =>
    createAdmission({ settings: config, clock, scheduler, meters, others, fleet: noFleetUsage });
  return {
    config,
    of(pool) {
      if (!config.isOn) return undefined;
      let queue = queues.get(pool);
      if (!queue) {
        queue = create();
        queues.set(pool, queue);
      }
      return queue;
    },
  };
}
