/**
 * Admission control: which request goes next when every engine of a pool is saturated. Requests are queued in the router by
 * class, tenant and deadline, within bounds; while an engine is unsaturated nothing waits. Decisions read loads as routing
 * does and know nothing of HTTP: the router and the fleet simulator run the same code.
 */
export {
  type Admission,
  createAdmission,
  type ExplainedAdmission,
  maxScanned,
  rescanMs,
  type WaitingWork,
} from "./admission.ts";
export { type AdmissionMeters, createAdmissionMeters } from "./admission-meters.ts";
export type { AdmissionExclusion, AdmissionRequest, AdmissionTicket } from "./admission-request.ts";
export { type AdmissionTarget, noPeerLoad, type PeerLoad } from "./admission-request.ts";
export { classSpanMs, type EngineOrder, type EnginePlace, engineOrders, enginePlace } from "./engine-order.ts";
export {
  type FleetUsage,
  maxBackoffMs,
  maxServedOwners,
  noFleetUsage,
  type TenantElsewhere,
  toleratedMs,
} from "./fair-share.ts";
export { type AdmissionSettings, type ClassSettings, defaultAdmissionSettings, maxClasses } from "./settings.ts";
