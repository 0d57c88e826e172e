import { lookup, Resolver } from "node:dns/promises";

/** What a name server says. An empty list means that it knows the name to have no such record. */
export interface DnsResolver {
  /** @param family 4 for A records, 6 for AAAA */
  addresses(name: string, family: 4 | 6): Promise<readonly string[]>;
  services(name: string): Promise<readonly { readonly name: string; readonly port: number }[]>;
  /** Ends what is asked at the moment, where that is possible. */
  cancel(): void;
}

/** One answer is waited for this long, and asked for this often. */
const attempt = { timeout: 2_000, tries: 2 };
/** The name does not exist, or has no record of the type. */
const emptyCodes: ReadonlySet<unknown> = new Set(["ENOTFOUND", "ENODATA"]);

/**
 * @param servers name servers as `address` or `address:port`. Without any, addresses are looked up as every program of
 *   the system does it, so that `/etc/hosts` and search domains count, and SRV records at the system's name servers.
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
