import { lookup, Resolver } from "node:dns/promises";
import type { AddressFamily, EngineAddress } from "./discovered-engine.ts";

/** Queries name servers. An empty list means that the name has no such record. */
export interface DnsResolver {
  /** @param family 4 for A records, 6 for AAAA */
  addresses(name: string, family: 4 | 6): Promise<readonly string[]>;
  services(name: string): Promise<readonly { readonly name: string; readonly port: number }[]>;
  /** Cancels queries in progress, where that is possible. */
  cancel(): void;
}

/** Timeout and number of attempts of one query. */
const attempt = { timeout: 2_000, tries: 2 };
/** The name does not exist, or has no record of the type. */
const emptyCodes: ReadonlySet<unknown> = new Set(["ENOTFOUND", "ENODATA"]);

/**
 * @param servers name servers as `address` or `address:port`. Without any, addresses are looked up through the system, with
 *   `/etc/hosts` and search domains, and SRV records at the system's name servers.
 */
export function createDnsResolver(servers: readonly string[]): DnsResolver {
  const resolver = new Resolver(attempt);
  if (servers.length > 0) resolver.setServers(servers);
  const resolve = (name: string, family: 4 | 6): Promise<string[]> =>
    family === 4 ? resolver.resolve4(name) : resolver.resolve6(name);
  const lookUp = async (name: string, family: 4 | 6): Promise<string[]> =>
    (await lookup(name, { all: true, family })).map(({ address }) => address);
  return {
    addresses: (name, family) => emptyWhenAbsent((servers.length > 0 ? resolve : lookUp)(name, family)),
    services: (name) => emptyWhenAbsent(resolver.resolveSrv(name)),
    cancel: () => resolver.cancel(),
  };
}

async function emptyWhenAbsent<T>(answer: Promise<T[]>): Promise<T[]> {
  try {
    return await answer;
  } catch (error) {
    if (emptyCodes.has((error as NodeJS.ErrnoException).code)) return [];
    throw error;
  }
}

/** Most targets of SRV records that are resolved at the same time. */
const maxParallel = 16;
/** Most SRV records used. Further ones are left out and reported. */
const maxServices = 4_096;

/** What to query. */
export interface DnsQuery {
  readonly name: string;
  /** Undefined to query SRV records, which have the port. */
  readonly port: number | undefined;
  readonly family: AddressFamily;
}

export interface FoundAddresses {
  readonly found: readonly EngineAddress[];
  /** Why some addresses could not be resolved. `found` is then incomplete. */
  readonly failure: unknown;
}

/**
 * Resolves single hosts.
 *
 * @param servers see `createDnsResolver`
 * @returns resolves a host; rejects for a host without addresses
 */
export function createHostLookup(servers: readonly string[]): (host: string) => Promise<readonly string[]> {
  const resolver = createDnsResolver(servers);
  return async (host) => {
    const found = await addressesOf(resolver, host, "auto");
    if (found.length === 0) throw new Error(`${host} has no addresses`);
    return found;
  };
}

/** @throws the resolver's error if nothing could be resolved */
export async function resolveAddresses(
  resolver: DnsResolver,
  { name, port, family }: DnsQuery,
): Promise<FoundAddresses> {
  if (port !== undefined) {
    const found = await addressesOf(resolver, name, family);
    return { found: found.map((address) => ({ address, port })), failure: undefined };
  }
  const services = await resolver.services(name);
  const targets = [...new Set(services.slice(0, maxServices).map((service) => service.name))];
  const hosts = new Map<string, readonly string[]>();
  let failure: unknown = services.length > maxServices ? `more than ${maxServices} SRV records` : undefined;
  const resolveRest = async (): Promise<void> => {
    for (let target = targets.pop(); target !== undefined; target = targets.pop()) {
      try {
        hosts.set(target, await addressesOf(resolver, target, family));
      } catch (error) {
        failure = error;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(maxParallel, targets.length) }, resolveRest));
  if (services.length > 0 && hosts.size === 0) throw failure;
  const found = services.flatMap((service) =>
    (hosts.get(service.name) ?? []).map((address) => ({ address, port: service.port })),
  );
  return { found, failure };
}

/** An answer without IPv4 addresses leads to a query for IPv6; a failed query does not. */
async function addressesOf(resolver: DnsResolver, name: string, family: AddressFamily): Promise<readonly string[]> {
  if (family !== "ipv6") {
    const found = await resolver.addresses(name, 4);
    if (found.length > 0 || family === "ipv4") return found;
  }
  return resolver.addresses(name, 6);
}
