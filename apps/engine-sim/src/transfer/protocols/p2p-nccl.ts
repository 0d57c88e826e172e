import type { Arrival, Exporter, Importer, Leg } from "../leg.ts";
import type { LegInput } from "../leg-input.ts";
import { loadFailure } from "../load-failure.ts";
import { callPeer } from "../peer-call.ts";

/**
 * vLLM's P2pNcclConnector: the prefill engine sends the blocks to the decode engine, whose address stands in the id of the
 * request, and holds nothing back. The decode engine waits for what comes under that id.
 */
export function p2pNcclLeg(input: LegInput): Leg {
  const { parts, exchange } = input;
  const { requestId } = exchange;
  if (parts.transfer.role === "prefill") {
    const address = /___decode_addr_(.+):(\d+)/.exec(requestId);
    return address ? { exporter: pushExporter(input, `http://${address[1]}:${address[2]}`) } : {};
  }
  return /___prefill_addr_(.+):(\d+)___/.test(requestId) ? { importer: inboxImporter(input) } : {};
}

function pushExporter({ sequence, exchange }: LegInput, peerUrl: string): Exporter {
  return {
    pins: false,
    ready: () => Promise.resolve(),
    async computed() {
      const url = `${peerUrl}/kv/push/${encodeURIComponent(exchange.requestId)}`;
      // Nobody hears of blocks that could not be sent; the decode engine waits for them in vain.
      await callPeer({ url, method: "PUT", body: Array.from(sequence.prompt) }).catch(() => {});
      return {};
    },
    cancelled() {},
  };
}

function inboxImporter({ parts, exchange }: LegInput): Importer {
  return {
    async open(signal): Promise<Arrival> {
      const tokens = await parts.inbox.take(exchange.requestId, signal);
      return { tokens, done() {}, whenBroken() {} };
    },
    failure: () => loadFailure(parts.transfer),
  };
}
