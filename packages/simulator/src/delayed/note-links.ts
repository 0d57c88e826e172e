import { asRouterId, type Clock, type Scheduler } from "@espalier/common";
import type { Origin, PlaneExchange } from "@espalier/replication";

export interface NoteLinksOptions<Plane> {
  /** Makes what a router that begins now has to tell others by frames. */
  readonly createPlane: (self: () => Origin) => Plane;
  /** When what is told at a moment is known to the other routers; later moments never arrive earlier. */
  readonly dueMs: (toldMs: number) => number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Routers that tell each other by the code that real routers run, over links that lose nothing. */
export interface NoteLinks<Plane> {
  /** Of a router that begins now; its life before, if it had one, hears nothing more. */
  planeOf(router: number): Plane;
}

export function createNoteLinks<Plane extends { readonly exchange: PlaneExchange }>(
  options: NoteLinksOptions<Plane>,
): NoteLinks<Plane> {
  const { createPlane, dueMs, clock, scheduler } = options;
  const planes = new Map<number, Plane>();
  let lives = 0;
  return {
    planeOf(router) {
      const origin = { router: asRouterId(`router-${router}`), epoch: ++lives };
      const plane = createPlane(() => origin);
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
