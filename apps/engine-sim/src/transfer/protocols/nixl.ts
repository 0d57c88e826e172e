import { isObject, type JsonObject, optionalObject } from "../../api/body-fields.ts";
import { offerOf, ownHost } from "../held-export.ts";
import type { Exporter, Importer, Leg } from "../leg.ts";
import type { LegInput } from "../leg-input.ts";
import { loadFailure } from "../load-failure.ts";

/**
 * vLLM's NixlConnector, where the decode engine reads (`nixl/pull_scheduler.py`): the prefill engine answers with the
 * address of its blocks and holds them until they were read, or for a time. What is wanted stands in the request alone.
 */
export function nixlLeg(input: LegInput): Leg {
  const params = optionalObject(input.body, "kv_transfer_params");
  if (params?.do_remote_decode === true) return { exporter: nixlExporter(input) };
  if (params?.do_remote_prefill === true) {
    const importer = nixlImporter(input, params);
    return importer ? { importer } : {};
  }
  return {};
}

function nixlExporter(input: LegInput): Exporter {
  const { parts, sequence, exchange } = input;
  // Only the blocks of a request that ended by its length are held.
  const pins = sequence.finishReason === "length";
  return {
    pins,
    ready: () => Promise.resolve(),
    computed(report) {
      if (!pins) return Promise.resolve({});
      const ticket = `${exchange.requestId}-${parts.newId()}`;
      parts.exports.begin(ticket, "hold").offer(offerOf(input, report));
      const params = {
        do_remote_prefill: true,
        do_remote_decode: false,
        remote_block_ids: [blockIds(sequence.prompt.length, parts.engine.parameters.blockSize)],
        remote_engine_id: parts.engineId(),
        remote_request_id: ticket,
        remote_host: ownHost(input),
        remote_port: parts.port(),
        tp_size: 1,
        dcp_size: 1,
        pp_size: 1,
        remote_num_tokens: sequence.prompt.length,
        remote_blocks_expiry_time: null,
        transfer_mode: "read",
      };
      return Promise.resolve({ top: { kv_transfer_params: params } });
    },
    cancelled() {},
  };
}

/** Numbers for blocks that have none in the model. Nobody looks inside. */
function blockIds(tokens: number, blockSize: number): number[] {
  return Array.from({ length: Math.ceil(tokens / blockSize) }, (_, at) => at + 1);
}

/** Parameters that are not complete are passed over, as there. */
function nixlImporter({ parts }: LegInput, params: JsonObject): Importer | undefined {
  const { remote_host: host, remote_port: port, remote_request_id: ticket, remote_engine_id: engineId } = params;
  const blocks = params.remote_block_ids;
  if (typeof host !== "string" || typeof ticket !== "string" || typeof engineId !== "string") return undefined;
  if (!isPort(port) || !(Array.isArray(blocks) || isObject(blocks))) return undefined;
  return {
    open: (signal) => parts.links.open({ host, port, ticket, engineId, waits: false }, signal),
    failure: () => loadFailure(parts.transfer),
  };
}

const isPort = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) > 0 && Number(value) < 65_536;
