import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, jsonType, send, sendJson, textType } from "../http/exchange.ts";
import { sglangMetrics } from "../metrics/sglang-metrics.ts";
import { vllmMetrics } from "../metrics/vllm-metrics.ts";
import { sglangEventFields } from "./kv-event-sources.ts";
import { sglangTransferFields, vllmTransferFields } from "./transfer-info.ts";

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

/** `GET /health` and `GET /ping` */
export function health(_context: EngineContext, exchange: Exchange): void {
  send(exchange, exchange.fault?.kind === "unhealthy" ? 503 : 200, textType, "");
}

/** `GET /version` */
export function version({ flavour }: EngineContext, exchange: Exchange): void {
  sendJson(exchange, 200, { version: versions[flavour] });
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

/** `GET /metrics` */
export function metrics({ flavour, models, adapters, engine, clock }: EngineContext, exchange: Exchange): void {
  const source = {
    engine,
    model: models[0],
    pretendsIdle: exchange.fault?.kind === "metrics-lie",
    adapterCount: adapters.names.length,
    nowS: clock.wallMs() / 1_000,
  };
  const page = flavour === "sglang" ? sglangMetrics(source) : vllmMetrics(source);
  send(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", page);
}

/** `POST /reset_prefix_cache` of vLLM, which says so when running requests prevent it. */
export function resetPrefixCache({ engine }: EngineContext, exchange: Exchange): void {
  const success = engine.resetPrefixCache();
  send(exchange, success ? 200 : 500, jsonType, JSON.stringify({ success }));
}

/** `POST /flush_cache` of SGLang. */
export function flushCache({ engine }: EngineContext, exchange: Exchange): void {
  const done = engine.resetPrefixCache();
  send(exchange, done ? 200 : 400, textType, done ? "Cache flushed.\n" : "Requests are running: cache not flushed.\n");
}
