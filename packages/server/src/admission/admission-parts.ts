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
import type { UsagePlane } from "@espalier/replication";
import type { Target } from "@espalier/workers";
import type { PoolSettings } from "../routing/pools.ts";
import { type ClassCounts, countClasses } from "./count-classes.ts";

/** The queues of all pools. */
export interface AdmissionParts {
  readonly config: AdmissionConfig;
  /** The queue of a pool, made on first use; undefined where admission is off. Pools are bounded, so queues are. */
  of(pool: PoolSettings): Admission<Target> | undefined;
  /** What became of the requests of each class, over all pools; empty where admission is off. */
  counts(): readonly ClassCounts[];
}

export interface AdmissionPartsOptions {
  readonly config: AdmissionConfig;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  /** What other routers have sent; undefined when nothing is shared. */
  readonly others: OthersLoad | undefined;
  /** What routers tell each other of tenants, by the model of the pool; undefined likewise. */
  readonly usage: Pick<UsagePlane, "of"> | undefined;
}

/** @throws RangeError for a configuration that was not checked */
export function createAdmissionParts(options: AdmissionPartsOptions): AdmissionParts {
  const { config, clock, scheduler, meter, others = noOthersLoad, usage } = options;
  const queues = new WeakMap<PoolSettings, Admission<Target>>();
  const { meters, counts } = countClasses(createAdmissionMeters(meter));
  const create = ({ model }: PoolSettings): Admission<Target> => {
    const fleet = usage?.of(model) ?? noFleetUsage;
    return createAdmission({ settings: config, clock, scheduler, meters, others, fleet });
  };
  return {
    config,
    counts: () => (config.isOn ? config.classes.map(({ name }) => counts(name)) : []),
    of(pool) {
      if (!config.isOn) return undefined;
      let queue = queues.get(pool);
      if (!queue) {
        queue = create(pool);
        queues.set(pool, queue);
      }
      return queue;
    },
  };
}
