import { type JsonObject, optionalObject } from "../../api/body-fields.ts";
import { ApiError } from "../../http/api-error.ts";
import { offerOf } from "../held-export.ts";
import type { Exporter, Importer, Leg } from "../leg.ts";
import type { LegInput } from "../leg-input.ts";
import { loadFailure } from "../load-failure.ts";

/**
 * vLLM's MooncakeConnector: both engines get the request at once, under one `transfer_id`. The decode engine finds the
 * prefill engine through its bootstrap server; the prefill engine computes in any case, answers, and holds the blocks
 * until they were sent, or for a time.
 */
export function mooncakeLeg(input: LegInput): Leg {
  const params = optionalObject(input.body, "kv_transfer_params");
  const id = params?.transfer_id;
  if (!params || typeof id !== "string") return {};
  if (params.do_remote_decode === true) return { exporter: mooncakeExporter(input, id) };
  if (params.do_remote_prefill !== true) return {};
  const importer = mooncakeImporter(input, params, id);
  return importer ? { importer } : {};
}

function mooncakeExporter(input: LegInput, transferId: string): Exporter {
  const { parts, sequence } = input;
  const pins = sequence.finishReason === "length";
  const exported = begin(input, transferId);
  return {
    pins,
    ready: () => Promise.resolve(),
    computed(report) {
      if (pins) exported.offer(offerOf(input, report));
      else exported.cancel("the prefill request ended by itself");
      return Promise.resolve({});
    },
    cancelled: () => exported.cancel(`the prefill request is gone from ${parts.engineId()}`),
  };
}

function begin({ parts }: LegInput, transferId: string) {
  try {
    return parts.exports.begin(transferId, "hold");
  } catch (error) {
    throw new ApiError(400, String(error), "kv_transfer_params");
  }
}

/** Parameters that are not complete are passed over, as there. */
function mooncakeImporter({ parts }: LegInput, params: JsonObject, ticket: string): Importer | undefined {
  const { remote_bootstrap_addr: address, remote_engine_id: engineId } = params;
  if (typeof address !== "string" || typeof engineId !== "string" || !URL.canParse(address)) return undefined;
  const { hostname, port } = new URL(address);
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return {
    open: (signal) => parts.links.open({ host, port: Number(port || 80), ticket, engineId, waits: true }, signal),
    failure: () => loadFailure(parts.transfer),
  };
}
