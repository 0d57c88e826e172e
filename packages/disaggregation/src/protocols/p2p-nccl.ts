import type { LegEngine, TransferProtocol } from "../transfer-protocol.ts";
import { randomId } from "./random-id.ts";
import { shortPrefill } from "./short-prefill.ts";
import { transferHost } from "./transfer-address.ts";

/** vLLM's `kv_port` where the engine was started without one. */
const usualPort = 14_579;

/**
 * vLLM's P2P-NCCL connector: both engines read each other's address out of the request's id. An engine of either role
 * refuses a request whose id names nobody.
 */
export const p2pNccl: TransferProtocol = {
  name: "p2p-nccl",
  order: "serial",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: false,
  pairsBoth: false,
  isPortable: false,
  pair({ prefill, decode, endpoint, fields, random }) {
    const id = `___prefill_addr_${addressOf(prefill)}___decode_addr_${addressOf(decode)}_${randomId(random)}`;
    const headers = ["x-request-id", id];
    return {
      prefill: { set: shortPrefill(endpoint, fields), headers },
      decode: () => ({ set: {}, headers }),
    };
  },
};

/** The first rank has the port that was given, each other one the next. */
function addressOf(engine: LegEngine): string {
  return `${transferHost(engine)}:${(engine.transfer.port ?? usualPort) + engine.rank}`;
}
