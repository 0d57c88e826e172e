import type { Cancel, Scheduler } from "@espalier/common";
import type { FaultAction } from "./fault-plan.ts";
import type { FleetControls } from "./fleet-controls.ts";

/**
 * Does to a fleet what a plan says, each action at its moment. To be called at the start of the run.
 *
 * @param done told of each action when it has been done
 * @returns cancels what is still to come
 */
export function runFaults(
  actions: readonly FaultAction[],
  fleet: { readonly controls: FleetControls; readonly scheduler: Scheduler },
  done: (action: FaultAction) => void = () => {},
): Cancel {
  const cancels = actions.map((action) =>
    fleet.scheduler.after(action.atMs, () => {
      action.apply(fleet.controls, fleet.scheduler);
      done(action);
    }),
  );
  return () => {
    for (const cancel of cancels) cancel();
  };
}
