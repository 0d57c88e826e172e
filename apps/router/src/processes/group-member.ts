import cluster from "node:cluster";
import { systemScheduler } from "@espalier/common";
import type { Router, RouterGroup } from "@espalier/server";
import type { GroupOrder, MemberAddresses, MemberReport, Place } from "./group-messages.ts";

/** This process as one of a group, seen from inside. */
export interface GroupMember {
  readonly place: Place;
  /** For the router. */
  readonly group: RouterGroup;
  /**
   * Tells where it serves and, as soon as it is, that it is ready; and does from here on what the first process says.
   * Resolves when the router has drained.
   */
  serve(router: Router, addresses: MemberAddresses): Promise<void>;
  /** Lets go of the first process, so that this one can end. */
  leave(): Promise<void>;
}

const askEveryMs = 20;
const waiting = ["the other processes of this router are not ready yet"];

/** Whether this process was started by the first one of a group. */
export function isGroupMember(): boolean {
  return cluster.isWorker;
}

/**
 * Asks the first process for a place. Signals reach the first process, which tells the others: a terminal or systemd
 * sends one to each process at once, and each would take the second one, which means now, for its own.
 */
export async function joinGroup(): Promise<GroupMember> {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
  const say = (report: MemberReport): void => {
    if (process.connected) process.send?.(report);
  };
  let router: Router | undefined;
  let isServing = false;
  let drained: () => void = () => {};
  const place = await new Promise<Place>((resolve) => {
    process.on("message", (message: unknown) => {
      const order = message as GroupOrder;
      if (order.type === "place") resolve(order.place);
      else if (order.type === "serving") isServing = true;
      else if (order.type === "reload") router?.reload(order.trigger);
      else if (order.type === "stop" && router) stop(router, order.isPatient, drained);
    });
    say({ type: "hello" });
  });
  isServing = place.isServing;
  const group: RouterGroup = {
    waitingFor: () => (isServing ? [] : waiting),
    reloadAsked: () => say({ type: "reload" }),
    isServing: place.isServing,
  };
  return {
    place,
    group,
    serve(served, { url, adminUrl, meshAddress }) {
      router = served;
      const hasDrained = new Promise<void>((resolve) => {
        drained = resolve;
      });
      say({ type: "listening", url, adminUrl, meshAddress });
      tellWhenReady(served, group, () => say({ type: "ready" }));
      return hasDrained;
    },
    async leave() {
      const { worker } = cluster;
      if (!worker?.isConnected()) return;
      await new Promise<void>((resolve) => {
        worker.once("disconnect", resolve);
        worker.disconnect();
      });
    },
  };
}

/** Others aside: they wait for this one. */
function tellWhenReady(router: Router, group: RouterGroup, tell: () => void): void {
  const cancel = systemScheduler.every(askEveryMs, () => {
    if (router.readiness().reasons.length > group.waitingFor().length) return;
    cancel();
    tell();
  });
}

function stop(router: Router, isPatient: boolean, drained: () => void): void {
  const { delayMs, graceMs } = router.config.drain;
  if (router.drain.started) router.drain.force();
  else void router.drain.run({ delayMs: isPatient ? delayMs : 0, graceMs }).then(drained);
}
