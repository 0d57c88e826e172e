import type { LegEngine, TransferProtocol } from "../transfer-protocol.ts";
import { randomId } from "./random-id.ts";
import { shortPrefill } from "./short-prefill.ts";
import { bootstrapPort, transferHost } from "./transfer-address.ts";

/**
 * vLLM's Mooncake connector: both legs carry an id of the transfer, and the decode leg says whose bootstrap server knows
 * the prefill engine, and by which name.
 */
export const mooncake: TransferProtocol = {
  name: "mooncake",
  order: "concurrent",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isPortable: false,
  peerQueryUrl: (prefill) => `${bootstrapUrl(prefill)}/query`,
  pair({ prefill, endpoint, fields, random, peerId }) {
    const transferId = `xfer-${randomId(random)}`;
    const sending = { do_remote_decode: true, do_remote_prefill: false, transfer_id: transferId };
    const receiving = {
      do_remote_decode: false,
      do_remote_prefill: true,
      remote_bootstrap_addr: bootstrapUrl(prefill),
      remote_engine_id: peerId ?? null,
      transfer_id: transferId,
    };
    return {
      prefill: {
        set: { ...shortPrefill(endpoint, fields), kv_transfer_params: JSON.stringify(sending) },
        headers: ["x-data-parallel-rank", String(prefill.rank)],
      },
      decode: () => ({ set: { kv_transfer_params: JSON.stringify(receiving) }, headers: [] }),
    };
  },
};

function bootstrapUrl(prefill: LegEngine): string {
  return `http://${transferHost(prefill)}:${prefill.transfer.port ?? bootstrapPort}`;
}
