import { isJsonObject, type JsonObject } from "@espalier/core";
import { optionalObject } from "../../http/body-fields.ts";
import { ApiError, wrongField } from "../../http/exchange.ts";
import type { Exporter, Importer, Leg, LegInput } from "../leg.ts";
import { offerOf, ownHost } from "../leg.ts";

/**
 * The `disaggregated_params` of trtllm-serve (`openai_disagg_service.py`, context first): a `context_only` request
 * generates one token and answers with the parameters of the `generation_only` request.
 */
export function trtllmLeg(input: LegInput): Leg {
  const params = optionalObject(input.body, "disaggregated_params");
  switch (params?.request_type) {
    case undefined:
    case "context_and_generation":
      return {};
    case "context_only":
      return { exporter: contextExporter(input, params), onlyPrompt: true };
    case "generation_only":
      return { importer: generationImporter(input, params) };
    default:
      throw wrongField("disaggregated_params.request_type", "context_only, generation_only or context_and_generation");
  }
}

function contextExporter(input: LegInput, asked: JsonObject): Exporter {
  const { parts, sequence } = input;
  return {
    pins: true,
    computed(report) {
      // Beyond JavaScript's safe integers, like the real ids, which combine a time, a machine and a count.
      const id = (2n ** 62n + (BigInt(`0x${parts.newId()}`) >> 3n)).toString();
      parts.exports.begin(id, "hold").offer(offerOf(input, report));
      const where = { host: ownHost(input), port: parts.port(), engineId: parts.engineId(), ticket: id };
      const params = {
        request_type: "context_only",
        first_gen_tokens: sequence.text.tokens(1),
        ctx_request_id: id,
        encoded_opaque_state: Buffer.from(JSON.stringify(where)).toString("base64"),
        draft_tokens: null,
        disagg_request_id: asked.disagg_request_id ?? null,
        ctx_dp_rank: 0,
        ctx_info_endpoint: null,
        schedule_style: asked.schedule_style ?? null,
      };
      const top = { prompt_token_ids: Array.from(sequence.prompt) };
      return Promise.resolve({ top, choice: { finish_reason: "length", disaggregated_params: params } });
    },
  };
}

function generationImporter({ parts }: LegInput, params: JsonObject): Importer {
  const { encoded_opaque_state: state, ctx_request_id: id } = params;
  if (id === undefined || id === null) {
    throw new ApiError(400, "generation_only needs the ctx_request_id of a context phase", "disaggregated_params");
  }
  const where = typeof state === "string" ? stateOf(state) : undefined;
  const { host, port, engineId, ticket } = where ?? {};
  if (typeof host !== "string" || typeof port !== "number" || typeof ticket !== "string" || String(id) !== ticket) {
    throw new ApiError(400, "opaque_state is from another engine type", "disaggregated_params");
  }
  const named = typeof engineId === "string" ? engineId : undefined;
  return {
    open: (signal) => parts.links.open({ host, port, ticket, engineId: named, waits: false }, signal),
    failure: (reason) => new ApiError(500, `Error in kv cache transfer for generation request ${ticket}: ${reason}`),
  };
}

function stateOf(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, "base64").toString("utf8"));
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
