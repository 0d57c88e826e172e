import type { Cancel, Scheduler, Startable } from "@espalier/core";
import { type LoadGauge, type LoadPlane, pickGauge } from "@espalier/shared-tree";
import type { RoutingTarget } from "./routing-target.ts";

/** Progress of answers changes all the time, so it is published at this interval. */
const progressMs = 50;
/** A computed prompt is published after this delay, so that many first tokens share a message. */
const decreaseDelayMs = 8;

/** Publishes to other routers what this one has sent to its engines. */
export interface LoadPublisher extends Startable {
  changed(target: RoutingTarget): void;
}

interface Published {
  readonly inFlight: number;
  readonly pendingPrefillTokens: number;
  readonly lendingTokens: number;
}

const idle: Published = { inFlight: 0, pendingPrefillTokens: 0, lendingTokens: 0 };

/**
 * Publishes a dispatch at once, because another router may be about to send to the same engine. Publishes the end of a
 * request at once too: as soon as the answer is there, the next turn of the conversation may arrive at any router. If
 * that router still counts the last turn, it may take the engine that has the whole prefix for one at its bound.
 * Publishes a first token with a short delay, and the progress of answers at intervals.
 */
export function createLoadPublisher(plane: Pick<LoadPlane, "set">, scheduler: Scheduler): LoadPublisher {
  const published = new Map<RoutingTarget, Published>();
  const decreased = new Set<RoutingTarget>();
  const progressed = new Set<RoutingTarget>();
  let cancelDecreased: Cancel | undefined;
  let cancelProgress: Cancel = () => {};
  const tell = (target: RoutingTarget): void => {
    const { inFlight, pendingPrefillTokens, lendingTokens } = target.load;
    progressed.delete(target);
    decreased.delete(target);
    if (inFlight === 0 && lendingTokens === 0) published.delete(target);
    else published.set(target, { inFlight, pendingPrefillTokens, lendingTokens });
    plane.set(target.key, gaugeOf(target.load));
  };
  const publishDecreased = (): void => {
    cancelDecreased = undefined;
    for (const target of decreased) tell(target);
  };
  return {
    changed(target) {
      const before = published.get(target) ?? idle;
      const { inFlight, pendingPrefillTokens, lendingTokens } = target.load;
      const isMore = pendingPrefillTokens > before.pendingPrefillTokens || lendingTokens > before.lendingTokens;
      if (inFlight !== before.inFlight || isMore) tell(target);
      else if (pendingPrefillTokens === before.pendingPrefillTokens && lendingTokens === before.lendingTokens)
        progressed.add(target);
      else {
        decreased.add(target);
        cancelDecreased ??= scheduler.after(decreaseDelayMs, publishDecreased);
      }
    },
    async start() {
      cancelProgress = scheduler.every(progressMs, () => {
        for (const target of progressed) tell(target);
      });
    },
    async stop() {
      cancelProgress();
      cancelDecreased?.();
      cancelDecreased = undefined;
      for (const target of [...decreased, ...progressed]) tell(target);
    },
  };
}

/** What other routers get to know of a router's load at a target. */
export function gaugeOf(load: RoutingTarget["load"]): LoadGauge {
  return pickGauge(load);
}
