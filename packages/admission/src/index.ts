/**
 * Which request goes next when every engine of a pool is busy. Requests wait in the router, by class, tenant and
 * deadline, and within bounds; while an engine has room nothing waits. Decisions read loads as routing does and know
 * nothing of HTTP: the router and the simulator of fleets run this same code.
 */
export { type Admission, type AdmissionOptions, createAdmission } from "./admission.ts";
export { type AdmissionMeters, createAdmissionMeters } from "./admission-meters.ts";
export type { AdmissionListener, AdmissionRequest, AdmissionTicket } from "./admission-request.ts";
export { type AdmissionTarget, noOthersLoad, type OthersLoad } from "./admission-request.ts";
export { classSpanMs, type EngineOrder, type EnginePlace, engineOrders, enginePlace } from "./engine-order.ts";
export {
  type FleetUsage,
  maxServedOwners,
  mostYieldMs,
  noFleetUsage,
  type TenantElsewhere,
  type TenantUsage,
} from "./fair-share.ts";
export { maxScanned, rescanMs } from "./pool-admission.ts";
export {
  type AdmissionSettings,
  type ClassRule,
  type ClassSettings,
  defaultAdmissionSettings,
  type MissAction,
  maxClasses,
  type QueueOrder,
} from "./settings.ts";
