import type { TransferProtocol } from "../transfer-protocol.ts";
import { shortPrefill } from "./short-prefill.ts";

/**
 * Engines over one store of blocks (llm-d): the decode engine ends at once, with the reason `cache_threshold`, when the
 * caches in its reach hold less of the prompt than the threshold says. Then a prefill engine fills the store.
 */
export const sharedStorage: TransferProtocol = {
  name: "shared-storage",
  order: "decode_first",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isPortable: true,
  pair: ({ endpoint, fields, cachedShare }) => ({
    probe: { set: { cache_hit_threshold: String(cachedShare) }, headers: [] },
    prefill: { set: shortPrefill(endpoint, fields), headers: [] },
    decode: () => ({ set: { cache_hit_threshold: "0" }, headers: [] }),
  }),
};
