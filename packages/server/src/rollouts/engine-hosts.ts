import { BlockList, isIP } from "node:net";
import { plainHost } from "@espalier/core";

/**
 * The hosts at which frameworks may add engines. Names are not looked up: a name is allowed as it is written, so that who
 * answers for it later changes nothing.
 *
 * @param allowed addresses, networks such as `10.0.0.0/8`, host names, and `*.` with the end of host names
 */
export function createEngineHosts(allowed: readonly string[]): (url: string) => boolean {
  const addresses = new BlockList();
  const names = new Set<string>();
  const ends: string[] = [];
  for (const written of allowed) {
    const [address = "", bits] = written.toLowerCase().split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    if (isIP(address) === 0) {
      if (address.startsWith("*.")) ends.push(address.slice(1));
      else names.add(address);
    } else if (bits === undefined) addresses.addAddress(address, family);
    else addresses.addSubnet(address, Number(bits), family);
  }
  return (url) => {
    const host = plainHost(new URL(url).hostname).toLowerCase();
    const family = isIP(host);
    if (family > 0) return addresses.check(host, family === 6 ? "ipv6" : "ipv4");
    return names.has(host) || ends.some((end) => host.endsWith(end));
  };
}
