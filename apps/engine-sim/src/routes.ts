import type { CacheFlavour } from "@espalier/engine-model";
import {
  addFault,
  clearFaults,
  kvEventMethods,
  kvPoolMethods,
  readPeers,
  readState,
  readTransfers,
  restart,
} from "./api/admin-routes.ts";
import { chatCompletions } from "./api/chat.ts";
import { completions } from "./api/completions.ts";
import {
  detokenize,
  flushCache,
  health,
  isSleeping,
  kvEventSources,
  listModels,
  metrics,
  prometheusMetrics,
  resetPrefixCache,
  serverInfo,
  sleep,
  tokenize,
  version,
  wakeUp,
} from "./api/engine-info.ts";
import { generate } from "./api/generate.ts";
import { loadAdapter, loadSglangAdapter, unloadAdapter, unloadSglangAdapter } from "./api/lora-adapters.ts";
import { countTokens, messages } from "./api/messages.ts";
import { embeddings, rerank, score } from "./api/pooling.ts";
import { realtime } from "./api/realtime.ts";
import { createResponse, deleteResponse, readResponse } from "./api/responses.ts";
import { generateTokens } from "./api/token-generate.ts";
import { trainingRoutes } from "./api/training.ts";
import { rankOf } from "./behaviours.ts";
import { ApiError } from "./http/exchange.ts";
import type { Handler, Route } from "./serving/route.ts";

const model = (handler: Handler): Route => ({
  methods: {
    POST(context, exchange, body) {
      if (context.engine.refusesRequests) throw new ApiError(503, "Generation is paused.");
      const wanted = exchange.request.headers["x-data-parallel-rank"];
      if (wanted !== undefined && context.behaviours.has("vllm-0.32.0:second-node-ranks")) {
        const rank = rankOf(context.behaviours);
        if (wanted !== String(rank)) throw new ApiError(400, `data_parallel_rank ${wanted} is not ${rank}`);
      }
      return handler(context, exchange, body);
    },
  },
  isModelRequest: true,
  isGuarded: true,
});
const open = (methods: Route["methods"]): Route => ({ methods, isModelRequest: false, isGuarded: false });
const guarded = (methods: Route["methods"]): Route => ({ methods, isModelRequest: false, isGuarded: true });

const routes: Readonly<Record<string, Route>> = {
  "/v1/chat/completions": model(chatCompletions),
  "/v1/completions": model(completions),
  "/v1/responses": model(createResponse),
  "/v1/messages": model(messages),
  "/v1/messages/count_tokens": model(countTokens),
  "/generate": model(generate),
  "/inference/v1/generate": { ...model(generateTokens), onlyFor: "vllm" },
  "/v1/embeddings": model(embeddings),
  "/v1/rerank": model(rerank),
  "/rerank": model(rerank),
  "/v1/score": model(score),
  "/score": model(score),
  "/v1/realtime": { methods: { GET: realtime }, isModelRequest: true, isGuarded: true, onlyFor: "vllm" },
  "/v1/models": guarded({ GET: listModels }),
  "/v1/load_lora_adapter": { ...guarded({ POST: loadAdapter }), onlyFor: "vllm" },
  "/v1/unload_lora_adapter": { ...guarded({ POST: unloadAdapter }), onlyFor: "vllm" },
  "/load_lora_adapter": { ...guarded({ POST: loadSglangAdapter }), onlyFor: "sglang" },
  "/unload_lora_adapter": { ...guarded({ POST: unloadSglangAdapter }), onlyFor: "sglang" },
  "/tokenize": guarded({ POST: tokenize }),
  "/detokenize": guarded({ POST: detokenize }),
  "/reset_prefix_cache": guarded({ POST: resetPrefixCache }),
  "/flush_cache": guarded({ POST: flushCache, GET: flushCache }),
  "/sleep": { ...guarded({ POST: sleep }), onlyFor: "vllm" },
  "/wake_up": { ...guarded({ POST: wakeUp }), onlyFor: "vllm" },
  "/is_sleeping": { ...guarded({ GET: isSleeping }), onlyFor: "vllm" },
  ...trainingRoutes,
  "/server_info": guarded({ GET: serverInfo }),
  "/kv_event_sources": guarded({ GET: kvEventSources }),
  "/health": open({ GET: health }),
  "/ping": open({ GET: health, POST: health }),
  "/version": open({ GET: version }),
  "/metrics": open({ GET: metrics }),
  "/prometheus/metrics": open({ GET: prometheusMetrics }),
  "/sim/state": open({ GET: readState }),
  "/sim/faults": open({ POST: addFault, DELETE: clearFaults }),
  "/sim/kv-events": open(kvEventMethods),
  "/sim/kv-pool": open(kvPoolMethods),
  "/sim/transfers": open({ GET: readTransfers }),
  "/sim/p2p": open({ GET: readPeers }),
  "/sim/reset": open({ POST: restart }),
};

const storedResponsePath = "/v1/responses/";

/** The route of a path, if the engine has one. */
export function routeFor(path: string, flavour: CacheFlavour): Route | undefined {
  const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (route) return route.onlyFor === undefined || route.onlyFor === flavour ? route : undefined;
  const id = path.startsWith(storedResponsePath) ? path.slice(storedResponsePath.length) : "";
  if (id === "" || id.includes("/")) return undefined;
  return guarded({
    GET: (context, exchange) => readResponse(context, exchange, id),
    DELETE: (context, exchange) => deleteResponse(context, exchange, id),
  });
}
