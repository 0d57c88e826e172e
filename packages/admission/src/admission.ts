import type { Clock, Scheduler } from "@espalier/common";
import type { AdmissionMeters } from "./admission-meters.ts";
import type {
  AdmissionListener,
  AdmissionRequest,
  AdmissionTarget,
  AdmissionTicket,
  OthersLoad,
} from "./admission-request.ts";
import type { FleetUsage, TenantUsage } from "./fair-share.ts";
import { PoolAdmission } from "./pool-admission.ts";
import { type AdmissionSettings, checkSettings } from "./settings.ts";

export interface AdmissionOptions {
  readonly settings: AdmissionSettings;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meters: AdmissionMeters;
  /** The load that other routers have sent. */
  readonly others: OthersLoad;
  readonly fleet: FleetUsage;
}

/** Who waits for the engines of one pool, and who goes next. */
export interface Admission<Target extends AdmissionTarget> {
  /**
   * A request came. While an engine has room for it and nobody before it waits, it is admitted before this returns.
   *
   * @returns undefined when it was refused
   */
  enter(request: AdmissionRequest, listener: AdmissionListener<Target>): AdmissionTicket | undefined;
  /** The load of an engine has fallen, or another engine can be used. Cheap while nobody waits. */
  eased(): void;
  /** Requests that wait for their turn. */
  readonly queued: number;
  /** Requests that wait for memory. */
  readonly held: number;
  /** What this router has served to whom. */
  usage(): readonly TenantUsage[];
}

/**
 * Makes the queue of one pool. Until every engine is past its knee it holds nothing back and costs one look at each
 * engine's load. Then requests wait here and not in engines' own queues, where nobody could order them any more: by class,
 * within a class by what tenants have been served, within a tenant by the class's order. Nothing is held up by a request
 * before it whose own engine is busy.
 *
 * @throws RangeError for settings that make no sense
 */
export function createAdmission<Target extends AdmissionTarget>(options: AdmissionOptions): Admission<Target> {
  checkSettings(options.settings);
  return new PoolAdmission<Target>(options);
}
