import { createSeededRandom, type KvTransferProtocol, type KvTransferSpec } from "@espalier/core";
import { type LegEngine, type PairRequest, transferProtocols } from "../../src/disaggregation/index.ts";

/** An engine of a pair at a host, with what differs from the usual. */
export function engineAt(
  host: string,
  protocol: KvTransferProtocol,
  { rank = 0, rankCount = 1, ...spec }: Partial<KvTransferSpec> & { rank?: number; rankCount?: number } = {},
): LegEngine {
  const transfer = { host: undefined, port: undefined, ...spec, protocol };
  return { url: `http://${host}:8000`, transfer, rank, rankCount };
}

/** A request for a pair of engines `p` and `d`. */
export function pairRequest(protocol: KvTransferProtocol, changes: Partial<PairRequest> = {}): PairRequest {
  return {
    prefill: engineAt("p", protocol),
    decode: engineAt("d", protocol),
    endpoint: "chat",
    fields: { model: "m", messages: [{ role: "user", content: "x" }] },
    random: createSeededRandom(1),
    peerId: undefined,
    cachedShare: 0.5,
    ...changes,
  };
}

export const pairOf = (protocol: KvTransferProtocol, changes: Partial<PairRequest> = {}) =>
  transferProtocols[protocol].pair(pairRequest(protocol, changes));

/** The values of edits, read as JSON. */
export const valuesOf = (set: Readonly<Record<string, string>> | undefined): Record<string, unknown> =>
  Object.fromEntries(Object.entries(set ?? {}).map(([key, value]) => [key, JSON.parse(value)]));
