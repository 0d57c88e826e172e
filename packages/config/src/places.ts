import { isIP } from "node:net";
import type { Path, Problem } from "./problems.ts";
import type { ConfigTree } from "./schema/config-schema.ts";

/** A service of Kubernetes and one of its ports: a number or a name, undefined for the first one. */
export function compileService(written: string) {
  const { namespace, name: rest } = splitNamespace(written);
  const { name: service, port } = splitPort(rest);
  return { namespace, service, port: portOf(port) ?? port };
}

type PodPlace = ConfigTree["mesh"]["seed-pods"][number];

/** Pods of Kubernetes and one of their ports. */
export function compilePods({ selector, namespace, port, "port-name": portName = "" }: PodPlace) {
  return { namespace, selector, port: port ?? portName };
}

export function checkPods({ port, "port-name": portName }: PodPlace, path: Path): Problem[] {
  if ((port === undefined) !== (portName === undefined)) return [];
  return [{ path, message: "needs either port or port-name" }];
}

/** What tells pods from others that are followed. */
export const nameOfPods = ({ namespace = "", selector }: PodPlace): string => `${namespace}/${selector}`;

/** @param written what ends in a port, if in any; the name of one is fine */
export function checkPortOf(written: string, path: Path): Problem[] {
  const { port } = splitPort(written);
  if (port === undefined || !/^\d+$/.test(port) || portOf(port) !== undefined) return [];
  return [{ path, message: `${port} is no port from 1 to 65535` }];
}

/** @param server a name server: `ADDRESS` or `ADDRESS:PORT` */
export function checkServer(server: string, path: Path): Problem[] {
  const [, address = ""] = /^\[?(.*?)\]?(?::(\d+))?$/.exec(isIP(server) === 6 ? `[${server}]` : server) ?? [];
  if (isIP(address) === 0) return [{ path, message: `${JSON.stringify(server)} is no IP address` }];
  return isIP(server) === 6 ? [] : checkPortOf(server, path);
}

export function checkTwice(names: readonly string[], path: Path): Problem[] {
  return names.flatMap((name, at) => {
    const first = names.indexOf(name);
    return first === at ? [] : [{ path: [...path, at], message: `is the same as element ${first}` }];
  });
}

export function splitNamespace(written: string): { namespace: string | undefined; name: string } {
  const slash = written.indexOf("/");
  return slash < 0
    ? { namespace: undefined, name: written }
    : { namespace: written.slice(0, slash), name: written.slice(slash + 1) };
}

export function splitPort(written: string): { name: string; port: string | undefined } {
  const colon = written.lastIndexOf(":");
  return colon < 0
    ? { name: written, port: undefined }
    : { name: written.slice(0, colon), port: written.slice(colon + 1) };
}

/** @returns undefined for what is no number from 1 to 65535 */
export function portOf(text: string | undefined): number | undefined {
  const port = text !== undefined && /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65_535 ? port : undefined;
}
