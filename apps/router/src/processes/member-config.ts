import { type CompiledConfig, type MeshConfig, Secret } from "@espalier/config";
import type { Place } from "./group-messages.ts";

/**
 * The configuration of one process of a group. Admin and mesh ports count up from the first one's; a name of the router
 * gets the number of the process. Where nothing is shared with other machines, the processes share with each other on
 * loopback addresses.
 */
export function memberConfig(config: CompiledConfig, place: Place): CompiledConfig {
  const { admin, mesh } = config;
  return {
    ...config,
    admin: {
      ...admin,
      port: portOf(admin.port, place),
      advertise: admin.advertise && originOf(admin.advertise, place),
    },
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
    seedSources: { records: [], servers: [], file: undefined, services: [], pods: [] },
    secret: new Secret(place.meshSecret),
    tls: undefined,
  };
}

function sharedMesh(mesh: MeshConfig, place: Place): MeshConfig {
  return {
    ...mesh,
    // Without a name it is made of the host's and the port, which differs.
    routerId: mesh.routerId === undefined ? undefined : `${mesh.routerId}-${place.index + 1}`,
    port: portOf(mesh.port, place),
    advertise: mesh.advertise && advertiseOf(mesh.advertise, place),
    seeds: [...mesh.seeds, ...place.seeds],
  };
}

/** 0 stays what it is: any free one. */
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
