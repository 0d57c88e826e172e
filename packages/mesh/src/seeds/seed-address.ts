import { isIP } from "node:net";

export interface SeedAddress {
  /** A name, or an IP address without brackets. */
  readonly host: string;
  readonly port: number;
  /** Whether the host has to be resolved. */
  readonly isName: boolean;
}

/**
 * @param text `host:port`; an IPv6 address stands in brackets
 * @throws RangeError for anything else
 */
export function parseSeed(text: string): SeedAddress {
  const parts = /^(?:\[([^\]]+)\]|([^:[\]\s/]+)):(\d{1,5})$/.exec(text);
  const host = parts?.[1] ?? parts?.[2] ?? "";
  const port = Number(parts?.[3]);
  const isBracketedName = parts?.[1] !== undefined && isIP(host) !== 6;
  if (host === "" || isBracketedName || !(port >= 1 && port <= 65_535)) {
    throw new RangeError(`a seed is host:port, not ${JSON.stringify(text)}`);
  }
  return { host, port, isName: isIP(host) === 0 };
}

/** The form in which an address is dialed. */
export function formatAddress(host: string, port: number): string {
  return isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
}
