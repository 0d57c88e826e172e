import { asRouterId, type Clock, type Scheduler, silentMeter } from "@espalier/common";
import { createUsagePlane, type UsagePlane } from "@espalier/replication";

export interface UsageLinksOptions {
  /** When what is told at a moment is known to the other routers; later moments never arrive earlier. */
  readonly dueMs: (toldMs: number) => number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Routers that tell each other whom they have served, by the code that real routers run, over links that lose nothing. */
export interface UsageLinks {
  /** What a router that begins now tells and hears; its life before, if it had one, hears nothing more. */
  planeOf(router: number): UsagePlane;
}

export function createUsageLinks({ dueMs, clock, scheduler }: UsageLinksOptions): UsageLinks {
  const planes = new Map<number, UsagePlane>();
  let lives = 0;
  return {
    planeOf(router) {
      const origin = { router: asRouterId(`router-${router}`), epoch: ++lives };
      const plane = createUsagePlane({ self: () => origin, clock, scheduler, meter: silentMeter });
      planes.set(router, plane);
      for (const [other, { exchange }] of planes) {
        if (other !== router) for (const frame of exchange.fullFrames()) plane.exchange.receive(frame);
      }
      plane.exchange.onFrame((frame) => {
        if (planes.get(router) !== plane) return;
        scheduler.after(dueMs(clock.nowMs()) - clock.nowMs(), () => {
          for (const [other, { exchange }] of planes) if (other !== router) exchange.receive(frame);
        });
      });
      return plane;
    },
  };
}
