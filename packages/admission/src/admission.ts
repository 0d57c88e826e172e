import type { Clock, Scheduler } from "@espalier/common";
import type { AdmissionMeters } from "./admission-meters.ts";
import type {
  AdmissionListener,
  AdmissionRequest,
  AdmissionTarget,
  AdmissionTicket,
  PeerLoad,
} from "./admission-request.ts";
import type { FleetUsage, TenantUsage } from "./fair-share.ts";
import { PoolAdmission } from "./pool-admission.ts";
import { type AdmissionSettings, checkSettings } from "./settings.ts";

export interface AdmissionOptions {
  readonly settings: AdmissionSettings;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meters: AdmissionMeters;
  /** Load sent by other routers. */
  readonly others: PeerLoad;
  readonly fleet: FleetUsage;
  /**
   * How long a request waits, after its arrival, while no engine is up, in milliseconds; read for each request. 0, the
   * default, for not at all: its caller then finds that there is no engine.
   */
  readonly holdMs?: () => number;
}

/** The work of one queued request. */
export interface WaitingWork {
  /** Estimated prompt tokens that an engine will have to compute. */
  readonly uncachedTokens: number;
  /** Of its answer; 0 when unknown. */
  readonly outputTokens: number;
  /** Milliseconds in which it has to leave the queue to meet its deadline; Infinity without one. */
  readonly leaveInMs: number;
}

/** The admission queue of one pool. */
export interface Admission<Target extends AdmissionTarget> {
  /**
   * A request arrived. If an engine is unsaturated and nothing is queued before it, it is admitted before this returns.
   *
   * @returns undefined when it was refused
   */
  enter(request: AdmissionRequest, listener: AdmissionListener<Target>): AdmissionTicket | undefined;
  /** An engine's load has fallen, or another engine became usable. Cheap while the queue is empty. */
  capacityFreed(): void;
  /** Requests in the queue. */
  readonly queued: number;
  /** Requests parked for memory. */
  readonly parked: number;
  /** What is queued, in no order. */
  backlog(): readonly WaitingWork[];
  /** Tokens served by this router, by class and tenant. */
  usage(): readonly TenantUsage[];
}

/**
 * Creates the queue of one pool. While any engine is below its saturation limit nothing waits, and a request costs one
 * look at each engine's load. Past that, requests wait here instead of in the engines' own queues, where they can no
 * longer be reordered. They are ordered by class, within a class by the tokens served to each tenant, and within a
 * tenant by the class's order. A request that needs one busy engine does not block those behind it.
 *
 * @throws RangeError for inconsistent settings
 */
export function createAdmission<Target extends AdmissionTarget>(options: AdmissionOptions): Admission<Target> {
  checkSettings(options.settings);
  return new PoolAdmission<Target>(options);
}
