import { isJsonObject, type JsonObject, plainHost } from "@espalier/core";
import { mooncakeKey } from "@espalier/engine-model/kv-events";
import { optionalObject } from "../../http/body-fields.ts";
import { ApiError, wrongField } from "../../http/exchange.ts";
import { blockNames } from "../block-store.ts";
import {
  type Arrival,
  type Exporter,
  type Importer,
  type Leg,
  type LegInput,
  loadFailure,
  offerOf,
  ownHost,
} from "../leg.ts";
import { callPeer } from "../peer-client.ts";

/**
 * vLLM's NixlConnector, where the decode engine reads (`nixl/pull_scheduler.py`). The prefill engine answers with the
 * address of its blocks, and keeps them until they are read or a timeout passes. The request alone has all parameters.
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
  // Only blocks of a request that ended by length are kept.
  const pins = sequence.finishReason === "length";
  return {
    pins,
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
  };
}

/** Block numbers, which the model does not have. No client reads them. */
function blockIds(tokens: number, blockSize: number): number[] {
  return Array.from({ length: Math.ceil(tokens / blockSize) }, (_, at) => at + 1);
}

/** Incomplete parameters are ignored, as in vLLM. */
function nixlImporter({ parts }: LegInput, params: JsonObject): Importer | undefined {
  const { remote_host: host, remote_port: port, remote_request_id: ticket, remote_engine_id: engineId } = params;
  const blocks = params.remote_block_ids;
  if (typeof host !== "string" || typeof ticket !== "string" || typeof engineId !== "string") return undefined;
  if (!isPort(port) || !(Array.isArray(blocks) || isJsonObject(blocks))) return undefined;
  return {
    open: (signal) => parts.links.open({ host, port, ticket, engineId, waits: false }, signal),
    failure: () => loadFailure(parts.transfer),
  };
}

const isPort = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) > 0 && Number(value) < 65_536;

/**
 * vLLM's MooncakeConnector: both engines get the request at once, under one `transfer_id`. The decode engine finds the
 * prefill engine through its bootstrap server. The prefill engine computes at once, answers, and keeps the blocks until
 * they are sent or a timeout passes.
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
    computed(report) {
      if (pins) exported.offer(offerOf(input, report));
      else exported.cancel("the prefill request ended by itself");
      return Promise.resolve({});
    },
    cancelled: () => exported.cancel(`the prefill request was cancelled on ${parts.engineId()}`),
  };
}

function begin({ parts }: LegInput, transferId: string) {
  try {
    return parts.exports.begin(transferId, "hold");
  } catch (error) {
    throw new ApiError(400, String(error), "kv_transfer_params");
  }
}

/** Incomplete parameters are ignored, as in vLLM. */
function mooncakeImporter({ parts }: LegInput, params: JsonObject, ticket: string): Importer | undefined {
  const { remote_bootstrap_addr: address, remote_engine_id: engineId } = params;
  if (typeof address !== "string" || typeof engineId !== "string" || !URL.canParse(address)) return undefined;
  const { hostname, port } = new URL(address);
  const host = plainHost(hostname);
  return {
    open: (signal) => parts.links.open({ host, port: Number(port || 80), ticket, engineId, waits: true }, signal),
    failure: () => loadFailure(parts.transfer),
  };
}

/**
 * Engines that share a store of blocks: each reads the stored prefix of a prompt, and writes the blocks it computed.
 * With `cache_hit_threshold` (vLLM's RFC 24256) an engine rejects a request when too little of it is cached.
 */
export function sharedStorageLeg(input: LegInput): Leg {
  const { body, parts, sequence } = input;
  const names = blockNames(sequence, parts.engine.parameters.blockSize);
  const threshold = body.cache_hit_threshold ?? undefined;
  if (threshold !== undefined && !(typeof threshold === "number" && threshold >= 0 && threshold <= 1)) {
    throw wrongField("cache_hit_threshold", "a number from 0 to 1");
  }
  const leg = { importer: storeImporter(input, names), exporter: storeExporter(input, names) };
  return threshold === undefined ? leg : { ...leg, cacheHitThreshold: threshold };
}

function storeImporter({ parts, sequence }: LegInput, blocks: readonly string[]): Importer {
  return {
    async open(signal): Promise<Arrival | undefined> {
      const answer = await callPeer({
        url: `${parts.storageUrl()}/storage/lookup`,
        method: "POST",
        body: { blocks },
        signal,
      });
      const found = isJsonObject(answer) ? Number(answer.found) : 0;
      const tokens = sequence.prompt.subarray(0, found * parts.engine.parameters.blockSize);
      return tokens.length === 0 ? undefined : { tokens, done() {}, whenBroken() {} };
    },
    // A store that does not answer counts as empty.
    failure: () => undefined,
  };
}

function storeExporter({ parts, sequence }: LegInput, blocks: readonly string[]): Exporter {
  const { prompt, adapter, cacheSalt } = sequence;
  const { blockSize } = parts.engine.parameters;
  return {
    pins: false,
    async computed() {
      const tokens = Array.from(prompt.subarray(0, blocks.length * blockSize));
      const keys = parts.engine.hashesOf(sequence).map((hash) => mooncakeKey("sim", hash));
      const body = { blocks, keys, tokens, blockSize, adapter, cacheSalt };
      await callPeer({ url: `${parts.storageUrl()}/storage/put`, method: "POST", body }).catch(() => {});
      return {};
    },
  };
}

/**
 * vLLM's P2pNcclConnector: the prefill engine pushes the blocks to the decode engine, whose address is part of the
 * request's id, and keeps none. The decode engine waits for the blocks of that id.
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
    async computed() {
      const url = `${peerUrl}/kv/push/${encodeURIComponent(exchange.requestId)}`;
      // A failed push is not reported; the decode engine times out.
      await callPeer({ url, method: "PUT", body: Array.from(sequence.prompt) }).catch(() => {});
      return {};
    },
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
