import type { TargetIndex } from "@espalier/common";
import type { Target } from "./engine-record.ts";

/** What a fleet has in common with the fleets of other routers. Without it, it stands alone. */
export interface FleetSharing {
  /** The index for a target; the caller sees to it that no other target has it. */
  indexOf(targetKey: string): TargetIndex;
  /** What this router has sent to the target changed. Called often: it should note it and return. */
  loadChanged(target: Target): void;
  /** Requests that other routers have in flight to a target. */
  othersInFlight(target: TargetIndex): number;
}
