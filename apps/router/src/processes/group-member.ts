import cluster from "node:cluster";
import { systemScheduler } from "@espalier/core";
import type { Router, RouterGroup } from "@espalier/server";
import { type CompiledConfig, type MeshConfig, Secret } from "@espalier/server";
import type { GroupOrder, MemberAddresses, MemberReport, Place } from "./process-group.ts";

const askEveryMs = 20;
const waiting = ["the other processes of this router are not ready yet"];

/** Whether the first process of a group started this one. */
export function isGroupMember(): boolean {
  return cluster.isWorker;
}

/**
 * Makes this process a member of a group: asks the first process for a place. The first process forwards signals to the others and is the only one that handles
 * them: a terminal or systemd sends each signal to every process, and each would take the forwarded one for the second
 * signal, which means "now".
 */
export async function joinGroup() {
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
      else if (order.type === "stop" && router) stop(router, order.isDelayed, drained);
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
    /** For the router. */
    group,
    /**
     * Reports where it serves, and that it is ready as soon as it is. From then on it obeys the first process. Resolves
     * when the router has drained.
     */
    serve(served: Router, { url, adminUrl, rolloutsUrl, meshAddress, picker }: MemberAddresses): Promise<void> {
      router = served;
      const hasDrained = new Promise<void>((resolve) => {
        drained = resolve;
      });
      say({ type: "listening", url, adminUrl, rolloutsUrl, meshAddress, picker });
      tellWhenReady(served, group, () => say({ type: "ready" }));
      return hasDrained;
    },
    /** Disconnects from the first process, so that this one can end. */
    async leave(): Promise<void> {
      const { worker } = cluster;
      if (!worker?.isConnected()) return;
      await new Promise<void>((resolve) => {
        worker.once("disconnect", resolve);
        worker.disconnect();
      });
    },
  };
}

/** Not the others: they wait for this one. */
function tellWhenReady(router: Router, group: RouterGroup, tell: () => void): void {
  const cancel = systemScheduler.every(askEveryMs, () => {
    if (router.readiness().reasons.length > group.waitingFor().length) return;
    cancel();
    tell();
  });
}

function stop(router: Router, isDelayed: boolean, drained: () => void): void {
  const { delayMs, graceMs } = router.config.drain;
  if (router.drain.started) router.drain.force();
  else void router.drain.run({ delayMs: isDelayed ? delayMs : 0, graceMs }).then(drained);
}

/**
 * The configuration of one process of a group. Ports of admin, mesh and health checks count up from those of the first process. A router
 * name gets the process number appended. If nothing is shared with other machines, the processes form a mesh on
 * loopback addresses.
 */
export function memberConfig(config: CompiledConfig, place: Place): CompiledConfig {
  const { admin, endpointPicker: picker, mesh } = config;
  return {
    ...config,
    admin: {
      ...admin,
      port: portOf(admin.port, place),
      advertise: admin.advertise && originOf(admin.advertise, place),
    },
    // The processes share the port for gateways, and answer health checks apart.
    endpointPicker: picker && { ...picker, healthPort: portOf(picker.healthPort, place) },
    mesh: mesh.backend === "off" ? privateMesh(mesh, place) : sharedMesh(mesh, place),
  };
}

function privateMesh(mesh: MeshConfig, place: Place): MeshConfig {
  return {
    ...mesh,
    backend: "peers",
    routerId: `${mesh.routerId ?? "process"}-${place.index + 1}`,
    host: "127.0.0.1",
    port: 0,
    advertise: undefined,
    seeds: place.seeds,
    seedRecords: [],
    seedServers: [],
    seedsFile: undefined,
    seedServices: [],
    seedPods: [],
    secret: new Secret(place.meshSecret),
    tls: undefined,
  };
}

function sharedMesh(mesh: MeshConfig, place: Place): MeshConfig {
  return {
    ...mesh,
    // Without a name, it is derived from the host's name and the port, which differs.
    routerId: mesh.routerId === undefined ? undefined : `${mesh.routerId}-${place.index + 1}`,
    port: portOf(mesh.port, place),
    advertise: mesh.advertise && advertiseOf(mesh.advertise, place),
    seeds: [...mesh.seeds, ...place.seeds],
  };
}

/** 0 stays 0: any free port. */
function portOf(first: number, { index }: Place): number {
  return first === 0 ? 0 : first + index;
}

const usualPorts: Readonly<Record<string, number>> = { "http:": 80, "https:": 443 };

function originOf(first: string, place: Place): string {
  const url = new URL(first);
  url.port = String(portOf(url.port === "" ? (usualPorts[url.protocol] ?? 0) : Number(url.port), place));
  return url.origin;
}

function advertiseOf(first: string, place: Place): string {
  const colon = first.lastIndexOf(":");
  return `${first.slice(0, colon)}:${portOf(Number(first.slice(colon + 1)), place)}`;
}
