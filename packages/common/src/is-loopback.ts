import { isIP } from "node:net";

/** Whether only this machine can reach a listener on the host, a name or an address without brackets. */
export function isLoopback(host: string): boolean {
  const plain = host.toLowerCase();
  if (isIP(plain) === 4) return plain.startsWith("127.");
  return plain === "localhost" || plain === "::1";
}
