import type { Cancel, Scheduler, Startable } from "@espalier/common";
import type { LoadPlane } from "@espalier/replication";
import type { RoutingTarget } from "../routing-target.ts";

/** Tokens of answers change all the time; they are told this often. */
const progressMs = 50;
/** A prompt that has been computed is told so late: many first tokens go together then. */
const easedMs = 8;

/** Tells the other routers what this one has sent to its engines. */
export interface LoadPublisher extends Startable {
  changed(target: RoutingTarget): void;
}

interface Told {
  readonly inFlight: number;
  readonly pendingPrefillTokens: number;
}

const idle: Told = { inFlight: 0, pendingPrefillTokens: 0 };

/**
 * What is sent to an engine is told at once, since another router may be about to send there too. So is what ends: the
 * next turn of a conversation may come to any router as soon as the answer is there, and one that still counts the last
 * turn may hold the engine that has it all in its cache for one that is at its bound. What reaches its first token is
 * told a little later, and the progress of answers now and then.
 */
export function createLoadPublisher(plane: Pick<LoadPlane, "set">, scheduler: Scheduler): LoadPublisher {
  const told = new Map<RoutingTarget, Told>();
  const eased = new Set<RoutingTarget>();
  const progressed = new Set<RoutingTarget>();
  let cancelEased: Cancel | undefined;
  let cancelProgress: Cancel = () => {};
  const tell = (target: RoutingTarget): void => {
    const { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs, activeTokens } = target.load;
    progressed.delete(target);
    eased.delete(target);
    if (inFlight === 0) told.delete(target);
    else told.set(target, { inFlight, pendingPrefillTokens });
    plane.set(target.key, { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs, activeTokens });
  };
  const tellEased = (): void => {
    cancelEased = undefined;
    for (const target of eased) tell(target);
  };
  return {
    changed(target) {
      const before = told.get(target) ?? idle;
      const { inFlight, pendingPrefillTokens } = target.load;
      if (inFlight !== before.inFlight || pendingPrefillTokens > before.pendingPrefillTokens) tell(target);
      else if (pendingPrefillTokens === before.pendingPrefillTokens) progressed.add(target);
      else {
        eased.add(target);
        cancelEased ??= scheduler.after(easedMs, tellEased);
      }
    },
    async start() {
      cancelProgress = scheduler.every(progressMs, () => {
        for (const target of progressed) tell(target);
      });
    },
    async stop() {
      cancelProgress();
      cancelEased?.();
      cancelEased = undefined;
      for (const target of [...eased, ...progressed]) tell(target);
    },
  };
}
