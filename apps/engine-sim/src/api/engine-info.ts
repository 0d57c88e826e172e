import type { JsonObject } from "@espalier/core";
import { rankOf } from "../behaviours.ts";
import { sleepTags } from "../engine/simulated-engine.ts";
import type { EventChannelDescription } from "../event-channel.ts";
import { optionalBoolean, optionalString, tokenIds } from "../http/body-fields.ts";
import {
  ApiError,
  type Exchange,
  jsonType,
  missingField,
  send,
  sendJson,
  textType,
  wrongField,
} from "../http/exchange.ts";
import type { TransferProtocol } from "../options.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import type { PeerTier } from "../transfer/peer-tier.ts";
import { chatPromptOf } from "./chat.ts";
import { type MetricsSource, sglangMetrics, trtllmMetrics, vllmMetrics } from "./metrics-page.ts";
import { modelOf } from "./planning.ts";

/** The versions whose interfaces are imitated, marked as a simulation. */
const versions = { vllm: "0.32.0+simulated", sglang: "0.5.23+simulated" } as const;

/** `GET /v1/models` */
export function listModels({ flavour, models, adapters, engine, clock }: EngineContext, exchange: Exchange): void {
  const created = Math.floor(clock.wallMs() / 1000);
  const { maxModelLength } = engine.parameters;
  const common = { object: "model", created, owned_by: flavour };
  const data = [
    ...models.map((id) => ({ id, ...common, root: models[0], parent: null, max_model_len: maxModelLength })),
    ...adapters.names.map((id) => ({ id, ...common, root: id, parent: models[0], max_model_len: null })),
  ];
  sendJson(exchange, 200, { object: "list", data });
}

/** SGLang sleeps this long before it looks whether its token has come. */
const healthSleepMs = 1_001;

const loadingModel = { error: { message: "Loading model", type: "unavailable_error", code: 503 } };

/** `GET /health` and `GET /ping` */
export function health({ behaviours, scheduler }: EngineContext, exchange: Exchange): void {
  const answer = (): void => {
    if (exchange.fault?.kind !== "unhealthy") send(exchange, 200, textType, "");
    else if (behaviours.has("llama.cpp-00efb3e:says-that-it-loads")) sendJson(exchange, 503, loadingModel);
    else send(exchange, 503, textType, "");
  };
  if (behaviours.has("sglang-0.5.23:health-takes-a-second")) scheduler.after(healthSleepMs, answer);
  else answer();
}

/** `GET /version` */
export function version({ flavour }: EngineContext, exchange: Exchange): void {
  sendJson(exchange, 200, { version: versions[flavour] });
}

/** How long trtllm-serve waits for statistics of an iteration. */
const statisticsWaitMs = 2_000;

/** `GET /metrics` */
export function metrics(context: EngineContext, exchange: Exchange): void {
  const { flavour, behaviours, scheduler } = context;
  if (behaviours.has("trtllm-00057725:metrics-wait")) {
    scheduler.after(statisticsWaitMs, () => sendJson(exchange, 200, []));
    return;
  }
  const source = metricsSource(context, exchange);
  sendMetrics(exchange, flavour === "sglang" ? sglangMetrics(source) : vllmMetrics(source));
}

/** `GET /prometheus/metrics` of trtllm-serve */
export function prometheusMetrics(context: EngineContext, exchange: Exchange): void {
  if (!context.behaviours.has("trtllm-00057725:metrics-wait")) throw new ApiError(404, "Not Found");
  sendMetrics(exchange, trtllmMetrics(metricsSource(context, exchange)));
}

function metricsSource(context: EngineContext, exchange: Exchange): MetricsSource {
  const { models, adapters, engine, clock, peers, behaviours } = context;
  return {
    rank: rankOf(behaviours),
    engine,
    model: models[0],
    pretendsIdle: exchange.fault?.kind === "metrics-lie",
    adapterCount: adapters.names.length,
    nowS: clock.wallMs() / 1_000,
    pulledBytesPerToken: peers?.p2p.limits.bytesPerToken,
  };
}

function sendMetrics(exchange: Exchange, page: string): void {
  send(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", page);
}

/** `POST /reset_prefix_cache` of vLLM; 500 when running requests prevent it. */
export function resetPrefixCache({ engine }: EngineContext, exchange: Exchange): void {
  const success = engine.resetPrefixCache();
  send(exchange, success ? 200 : 500, jsonType, JSON.stringify({ success }));
}

/**
 * `POST /sleep` of vLLM (`vllm/entrypoints/serve/dev/sleep/api_router.py`). Of its modes only the default is simulated.
 *
 * @throws ApiError 400 for another level or mode
 */
export async function sleep({ engine }: EngineContext, exchange: Exchange): Promise<void> {
  const query = queryOf(exchange);
  const level = Number(query.get("level") ?? 1);
  if (![0, 1, 2].includes(level)) throw new ApiError(400, "level: Input should be 0, 1 or 2");
  const mode = query.get("mode") ?? "abort";
  if (mode !== "abort") throw new ApiError(400, `mode ${mode} is not simulated, only abort is`);
  await engine.fallAsleep(level);
  sendJson(exchange, 200, { status: "sleeping", level });
}

/** `POST /wake_up` of vLLM, for all memory pools or those that `tags` names. */
export function wakeUp({ engine }: EngineContext, exchange: Exchange): void {
  const tags = queryOf(exchange).getAll("tags");
  const isAwake = engine.wakeUp(tags.length > 0 ? tags : sleepTags);
  sendJson(exchange, 200, { status: isAwake ? "awake" : "sleeping", tags: tags.length > 0 ? tags : null });
}

/** `GET /is_sleeping` of vLLM. */
export function isSleeping({ engine }: EngineContext, exchange: Exchange): void {
  sendJson(exchange, 200, { is_sleeping: engine.sleep !== undefined });
}

const queryOf = ({ request }: Exchange): URLSearchParams => new URL(request.url ?? "/", "http://engine").searchParams;

/** `POST /flush_cache` of SGLang. */
export function flushCache({ engine }: EngineContext, exchange: Exchange): void {
  const done = engine.resetPrefixCache();
  send(exchange, done ? 200 : 400, textType, done ? "Cache flushed.\n" : "Requests are running: cache not flushed.\n");
}

/** `POST /tokenize`: the tokens of a `prompt`, or of `messages` as the chat endpoint would see them. */
export function tokenize(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  modelOf(context, body);
  const prompt = optionalString(body, "prompt");
  if (prompt === undefined && (body.messages ?? undefined) === undefined) throw missingField("prompt");
  const tokens =
    prompt === undefined
      ? context.text.chat(chatPromptOf(body), optionalBoolean(body, "add_generation_prompt") ?? true).tokens
      : context.text.text(prompt, optionalBoolean(body, "add_special_tokens") ?? true);
  sendJson(exchange, 200, {
    count: tokens.length,
    max_model_len: context.engine.parameters.maxModelLength,
    tokens: Array.from(tokens),
    token_strs: null,
  });
}

/** `POST /detokenize`: the text of `tokens`. */
export function detokenize(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  modelOf(context, body);
  const ids = body.tokens;
  if (ids === undefined) throw missingField("tokens");
  const tokens = Array.isArray(ids) && ids.length === 0 ? new Uint32Array() : tokenIds(ids);
  if (!tokens) throw wrongField("tokens", "a list of token ids");
  const text = context.text.decode(tokens);
  sendJson(exchange, 200, context.flavour === "sglang" ? { text } : { prompt: text });
}

/** `GET /server_info` */
export function serverInfo(context: EngineContext, exchange: Exchange): void {
  const { flavour, models, engine } = context;
  const { blockSize, blockCount, maxModelLength, maxRunning, maxBatchedTokens, prefixCaching } = engine.parameters;
  const info =
    flavour === "sglang"
      ? {
          version: versions.sglang,
          page_size: blockSize,
          max_total_num_tokens: blockCount * blockSize,
          served_model_name: models[0],
          enable_cache_report: true,
          ...sglangTransferFields(context),
          ...sglangEventFields(context),
        }
      : {
          vllm_config: {
            served_model_name: models,
            max_model_len: maxModelLength,
            max_num_seqs: maxRunning,
            max_num_batched_tokens: maxBatchedTokens,
            block_size: blockSize,
            enable_prefix_caching: prefixCaching,
            ...vllmTransferFields(context),
          },
        };
  sendJson(exchange, 200, info);
}

/** vLLM's description of its connector. */
function vllmTransferFields(context: EngineContext): JsonObject {
  const { transfers, peers } = context;
  if (peers) return { kv_transfer_config: offloadingConfiguration(context, peers) };
  const connector = transfers && connectors[transfers.transfer.protocol];
  if (!transfers || connector === undefined) return {};
  const { role, onFailure } = transfers.transfer;
  return {
    kv_transfer_config: {
      kv_connector: connector,
      kv_role: kvRoles[role],
      kv_port: transfers.port,
      kv_load_failure_policy: onFailure,
    },
  };
}

/** The configuration of vLLM's offloading connector with a P2P tier. */
function offloadingConfiguration(
  { engine, describesCpuBlocks }: EngineContext,
  { p2p, host, port }: PeerTier,
): JsonObject {
  const { cpuBlocks = 0, blockSize, cpuWrites } = engine.parameters;
  return {
    kv_connector: "OffloadingConnector",
    kv_role: "kv_both",
    kv_connector_extra_config: {
      spec_name: "TieringOffloadingSpec",
      cpu_bytes_to_use: cpuBlocks * blockSize * p2p.limits.bytesPerToken,
      offload_prompt_only: cpuWrites !== "all",
      self_describing_kv_events: describesCpuBlocks,
      secondary_tiers: [{ type: "p2p", host, port }],
    },
  };
}

/** SGLang's description of its role. */
function sglangTransferFields({ transfers }: EngineContext): JsonObject {
  if (transfers?.transfer.protocol !== "sglang-bootstrap") return {};
  const { role } = transfers.transfer;
  return { disaggregation_mode: role === "both" ? "null" : role, disaggregation_bootstrap_port: transfers.port };
}

/** Names of vLLM's connectors. The other two protocols are not vLLM's. */
const connectors: Readonly<Partial<Record<TransferProtocol, string>>> = {
  nixl: "NixlConnector",
  mooncake: "MooncakeConnector",
  "shared-storage": "ExampleConnector",
  "p2p-nccl": "P2pNcclConnector",
};

const kvRoles = { prefill: "kv_producer", decode: "kv_consumer", both: "kv_both" } as const;

/**
 * `GET /kv_event_sources` of vLLM 0.32: the publisher's configuration by data-parallel rank, empty when none is on.
 * Version 0.23 and other engines have no such path.
 */
export function kvEventSources({ flavour, kvEvents, behaviours }: EngineContext, exchange: Exchange): void {
  const events = kvEvents?.describe();
  if (flavour === "sglang" || (events && events.dialect !== "vllm-0.32")) throw new ApiError(404, "Not Found");
  sendJson(exchange, 200, events ? { [rankOf(behaviours)]: vllmConfiguration(events) } : {});
}

/** Bounds of vLLM's publisher that have no effect here, at their defaults. */
const vllmQueues = { hwm: 100_000, max_queue_size: 100_000 };
const anyHost = (port: number): string => `tcp://*:${port}`;

function vllmConfiguration({ port, replayPort, bufferSteps, topic }: EventChannelDescription) {
  return {
    enable_kv_cache_events: true,
    publisher: "zmq",
    endpoint: anyHost(port),
    replay_endpoint: replayPort === null ? null : anyHost(replayPort),
    buffer_steps: bufferSteps,
    ...vllmQueues,
    topic,
  };
}

/** SGLang 0.5.23's description of its publisher, in `/server_info`. */
function sglangEventFields({ kvEvents, engine }: EngineContext) {
  if (!kvEvents) return { kv_events_config: null, kv_events: null };
  const { port, replayPort, bufferSteps, topic } = kvEvents.describe();
  const replayed = replayPort === null ? {} : { replay_endpoint: anyHost(replayPort), buffer_steps: bufferSteps };
  return {
    kv_events_config: JSON.stringify({ publisher: "zmq", endpoint: anyHost(port), ...replayed, topic }),
    kv_events: {
      publisher: "zmq",
      endpoint_host: "*",
      endpoint_port_base: port,
      topic,
      block_size: engine.parameters.blockSize,
      dp_size: 1,
      ...(replayPort === null ? {} : { replay_endpoint_port_base: replayPort }),
    },
  };
}
