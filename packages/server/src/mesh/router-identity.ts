import { hostname, networkInterfaces } from "node:os";
import { asRouterId, type Random, type RouterId } from "@espalier/common";
import type { MeshConfig } from "@espalier/config";

/**
 * The id of this router: as configured, or made of the host's name and, where several routers may run on one host, the
 * port of the mesh, or something random where that is a free one.
 */
export function routerIdOf({ routerId, port }: Pick<MeshConfig, "routerId" | "port">, random: Random): RouterId {
  if (routerId !== undefined) return asRouterId(routerId);
  const name =
    hostname()
      .replaceAll(/[^A-Za-z0-9._-]/g, "-")
      .slice(0, 96) || "router";
  return asRouterId(`${name}-${port === 0 ? random.integer(2 ** 32).toString(36) : port}`);
}

/** The host that other routers dial: the one that is listened on, or, for all addresses, the first of this machine. */
export function advertisedHost(host: string): string {
  if (host !== "0.0.0.0" && host !== "::") return host.includes(":") ? `[${host}]` : host;
  const family = host === "::" ? "IPv6" : "IPv4";
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const outer = addresses.find((address) => !address.internal && address.family === family);
  const address = outer?.address ?? (family === "IPv6" ? "::1" : "127.0.0.1");
  return address.includes(":") ? `[${address}]` : address;
}
