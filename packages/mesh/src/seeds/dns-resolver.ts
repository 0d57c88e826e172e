import { lookup } from "node:dns/promises";

/** All addresses of a host, by the system's resolver, so that `/etc/hosts` and search domains count. */
export async function resolveHost(host: string): Promise<string[]> {
  const found = await lookup(host, { all: true });
  return found.map(({ address }) => address);
}
