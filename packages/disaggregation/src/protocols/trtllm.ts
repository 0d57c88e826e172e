import { readJsonMember } from "@espalier/openai";
import type { TransferProtocol } from "../transfer-protocol.ts";
import { shortPrefill } from "./short-prefill.ts";

const unfinished = new Set(['"length"', '"not_finished"']);
const requestType = /"request_type"\s*:\s*"[a-z_]*"/;

/**
 * TensorRT-LLM: the context server answers with parameters, among them an opaque state and the first token; the
 * generation server gets them with another type of request. A prompt whose answer ends with that token needs no second leg.
 */
export const trtllm: TransferProtocol = {
  name: "trtllm",
  order: "serial",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isPortable: true,
  pair: ({ endpoint, fields }) => ({
    prefill: {
      set: { ...shortPrefill(endpoint, fields), disaggregated_params: '{"request_type":"context_only"}' },
      headers: [],
    },
    decode(answer) {
      if (!answer || !unfinished.has(readJsonMember(answer, ["choices", "finish_reason"]) ?? "")) return undefined;
      const params = readJsonMember(answer, ["choices", "disaggregated_params"]);
      if (!params || !requestType.test(params)) return undefined;
      return {
        set: { disaggregated_params: params.replace(requestType, '"request_type":"generation_only"') },
        headers: [],
      };
    },
  }),
};
