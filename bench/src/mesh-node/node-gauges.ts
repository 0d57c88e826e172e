import type { Random, Scheduler } from "@espalier/core";
import type { Origin, ReplicaPorts } from "@espalier/mesh";
import { idleGauge, type LoadPlane, type TargetSlots } from "@espalier/shared-tree";
import { EventTimes, EventTimesByRouter } from "./event-times.ts";
import { createJittered } from "./jittered.ts";
import type { WallTime } from "./wall-time.ts";

export interface NodeGaugesOptions {
  readonly routerId: string;
  readonly load: LoadPlane;
  readonly slots: TargetSlots;
  readonly wallTime: WallTime;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly gaugesPerS: number;
}

/** A gauge that counts its own changes, to measure how long each takes to reach the others' sums. */
export interface NodeGauges {
  readonly sent: EventTimes;
  readonly seen: EventTimesByRouter;
  /** The ports, extended to look at the sums after each frame from another router. */
  watched(ports: ReplicaPorts): ReplicaPorts;
  start(): void;
  stop(): void;
}

/** Key of the target whose load only this router reports. */
export const gaugeTarget = (routerId: string): string => `gauge/${routerId}`;

export function createNodeGauges(options: NodeGaugesOptions): NodeGauges {
  const { routerId, load, slots, wallTime, scheduler, random } = options;
  const sent = new EventTimes();
  const seen = new EventTimesByRouter();
  const latest = new Map<string, number>();
  let next = 0;
  const send = (): void => {
    sent.add(next++, wallTime.nowMs());
    load.set(gaugeTarget(routerId), {
      ...idleGauge,
      inFlight: next,
      pendingPrefillTokens: next * 100,
      pendingWorkMs: next * 10,
    });
  };
  const look = ({ router }: Origin): void => {
    // Every node's fleet has all nodes' targets.
    const slot = slots.slotOf(gaugeTarget(router));
    const count = slot < 0 ? 0 : (load.shared.inFlight[slot] ?? 0);
    const before = latest.get(router) ?? 0;
    latest.set(router, count);
    if (count > before) seen.of(router).add(count - 1, wallTime.nowMs());
  };
  return {
    ...createJittered({ scheduler, random, ratePerS: options.gaugesPerS, task: send }),
    sent,
    seen,
    watched: (ports) => ({
      get origin() {
        return ports.origin;
      },
      documents: ports.documents,
      load: {
        onFrame: (listener) => ports.load.onFrame(listener),
        setPeerCount: (count) => ports.load.setPeerCount(count),
        fullFrames: () => ports.load.fullFrames(),
        relayFrames: () => ports.load.relayFrames(),
        hasAllOf: (origin) => ports.load.hasAllOf(origin),
        originGone: (origin) => ports.load.originGone(origin),
        receive(frame, isCredible) {
          const received = ports.load.receive(frame, isCredible);
          if (received.isNews) look(received.origin);
          return received;
        },
      },
      notes: ports.notes,
      snapshots: ports.snapshots,
      statements: () => ports.statements(),
      compareStatement: (statement, from) => ports.compareStatement(statement, from),
      highestEpoch: (router) => ports.highestEpoch(router),
      renewEpoch: (above) => ports.renewEpoch(above),
    }),
  };
}
