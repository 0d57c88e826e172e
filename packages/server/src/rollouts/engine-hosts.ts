import { BlockList, isIP } from "node:net";
import { plainHost } from "@espalier/core";

/**
 * The hosts at which frameworks may add engines. Names are not looked up: a name is allowed as it is written, so that who
 * answers for it later changes nothing.
 *
 * @param allowed addresses, networks such as `10.0.0.0/8`, host names, and `*.` with the end of host names
 */
export function createEngineHosts(allowed: readonly string[]): (url: string) => boolean {
  const isAddress = (written: string): boolean => isIP(written.split("/", 1)[0] ?? "") > 0;
  const isWithin = createNetworks(allowed.filter(isAddress));
  const names = allowed.filter((written) => !isAddress(written)).map((written) => written.toLowerCase());
  const ends = names.flatMap((name) => (name.startsWith("*.") ? [name.slice(1)] : []));
  return (url) => {
    const host = plainHost(new URL(url).hostname).toLowerCase();
    if (isIP(host) > 0) return isWithin(host);
    return names.includes(host) || ends.some((end) => host.endsWith(end));
  };
}

/**
 * @param networks addresses, and networks such as `10.0.0.0/8`
 * @returns whether an address is one of them, or in one
 */
export function createNetworks(networks: readonly string[]): (address: string) => boolean {
  const list = new BlockList();
  const familyOf = (address: string) => (isIP(address) === 6 ? "ipv6" : "ipv4");
  for (const written of networks) {
    const [address = "", bits] = written.split("/");
    if (bits === undefined) list.addAddress(address, familyOf(address));
    else list.addSubnet(address, Number(bits), familyOf(address));
  }
  return (address) => isIP(address) > 0 && list.check(address, familyOf(address));
}
