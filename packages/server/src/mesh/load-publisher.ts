import type { Cancel, Scheduler, Startable } from "@espalier/common";
import type { LoadPlane } from "@espalier/replication";
import type { Target } from "@espalier/workers";

/** Tokens of answers change all the time; they are told this often. */
const progressMs = 50;

/** Tells the other routers what this one has sent to its engines. */
export interface LoadPublisher extends Startable {
  changed(target: Target): void;
}

/** Requests that begin, reach their first token or end are told at once, the progress of answers now and then. */
export function createLoadPublisher(plane: LoadPlane, scheduler: Scheduler): LoadPublisher {
  const told = new Map<Target, { readonly inFlight: number; readonly pendingPrefillTokens: number }>();
  const progressed = new Set<Target>();
  let cancel: Cancel = () => {};
  const tell = (target: Target): void => {
    const { inFlight, pendingPrefillTokens, decodeTokens, outstandingOutputTokens } = target.load;
    progressed.delete(target);
    if (inFlight === 0) told.delete(target);
    else told.set(target, { inFlight, pendingPrefillTokens });
    plane.set(target.key, { inFlight, pendingPrefillTokens, decodeTokens, outstandingOutputTokens });
  };
  return {
    changed(target) {
      const before = told.get(target);
      const { inFlight, pendingPrefillTokens } = target.load;
      if (before?.inFlight === inFlight && before.pendingPrefillTokens === pendingPrefillTokens) progressed.add(target);
      else tell(target);
    },
    async start() {
      cancel = scheduler.every(progressMs, () => {
        for (const target of progressed) tell(target);
      });
    },
    async stop() {
      cancel();
    },
  };
}
