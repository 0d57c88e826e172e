import type { TransferProtocol } from "../transfer-protocol.ts";
import { bootstrapRoom } from "./bootstrap-room.ts";
import { bootstrapPort, transferHost } from "./transfer-address.ts";

/**
 * SGLang: both engines get the same request at the same time and meet in a room at the prefill engine's bootstrap server.
 * An engine is started for one of the roles and can do nothing else.
 */
export const sglang: TransferProtocol = {
  name: "sglang",
  order: "concurrent",
  endpoints: new Set(["chat", "completions", "generate"]),
  decodesAlone: false,
  pairsBoth: false,
  isPortable: false,
  pair({ prefill, random }) {
    const edits = {
      set: {
        bootstrap_host: JSON.stringify(transferHost(prefill)),
        bootstrap_port: String(prefill.transfer.port ?? bootstrapPort),
        bootstrap_room: bootstrapRoom(random, prefill.rank, prefill.rankCount),
      },
      headers: [],
    };
    return { prefill: edits, decode: () => edits };
  },
};
