import { readJsonMember } from "@espalier/openai";
import type { TransferProtocol } from "../transfer-protocol.ts";
import { shortPrefill } from "./short-prefill.ts";

/** What vLLM's NIXL connector wants to see in the first leg, in its second version. */
const remoteDecode =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}';

/**
 * vLLM's NIXL connector: the prefill engine keeps the blocks and answers where they are; the decode engine gets that
 * very object and fetches them. An answer that did not end by its length limit has no blocks to fetch.
 */
export const nixl: TransferProtocol = {
  name: "nixl",
  order: "serial",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isPortable: true,
  pair: ({ endpoint, fields }) => ({
    prefill: { set: { ...shortPrefill(endpoint, fields), kv_transfer_params: remoteDecode }, headers: [] },
    decode(answer) {
      if (!answer || readJsonMember(answer, ["choices", "finish_reason"]) !== '"length"') return undefined;
      const params = readJsonMember(answer, ["kv_transfer_params"]);
      return params?.startsWith("{") ? { set: { kv_transfer_params: params }, headers: [] } : undefined;
    },
  }),
};
