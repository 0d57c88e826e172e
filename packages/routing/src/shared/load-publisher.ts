import type { Cancel, Scheduler, Startable } from "@espalier/common";
import type { LoadPlane } from "@espalier/replication";
import type { RoutingTarget } from "../routing-target.ts";

/** Progress of answers changes all the time, so it is published at this interval. */
const progressMs = 50;
/** A computed prompt is published after this delay, so that many first tokens share a message. */
const easedMs = 8;

/** Publishes to other routers what this one has sent to its engines. */
export interface LoadPublisher extends Startable {
  changed(target: RoutingTarget): void;
}

interface Told {
  readonly inFlight: number;
  readonly pendingPrefillTokens: number;
}

const idle: Told = { inFlight: 0, pendingPrefillTokens: 0 };

/**
 * Publishes a dispatch at once, because another router may be about to send to the same engine. Publishes the end of a
 * request at once too: as soon as the answer is there, the next turn of the conversation may arrive at any router. If
 * that router still counts the last turn, it may take the engine that has the whole prefix for one at its bound.
 * Publishes a first token with a short delay, and the progress of answers at intervals.
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
