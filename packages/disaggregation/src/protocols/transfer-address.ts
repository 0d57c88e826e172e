import type { LegEngine } from "../transfer-protocol.ts";

/** Where other engines reach an engine's side of a transfer. IPv6 addresses are in brackets. */
export function transferHost({ url, transfer }: LegEngine): string {
  const host = transfer.host ?? new URL(url).hostname;
  return host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
}

/** Port of SGLang's bootstrap server, and of Mooncake's in vLLM, unless the engine was started with another one. */
export const bootstrapPort = 8_998;
