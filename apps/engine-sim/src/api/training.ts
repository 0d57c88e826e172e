import type { JsonObject } from "@espalier/core";
import { sleepTags } from "../engine/simulated-engine.ts";
import { optionalBoolean, optionalObject, optionalString, required } from "../http/body-fields.ts";
import { ApiError, type Exchange, sendJson } from "../http/exchange.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import type { Handler, Route } from "../serving/route.ts";

/*
 * What the frameworks of reinforcement learning ask of engines: vLLM 0.33 (`vllm/entrypoints/rl/online/api_router.py`) and
 * SGLang 0.5.23 (`srt/entrypoints/http_server.py`), whose forks have `/get_weight_version` as well. There are no weights: a version
 * is all that changes, and the caches.
 */

const queryOf = ({ request }: Exchange): URLSearchParams => new URL(request.url ?? "/", "http://engine").searchParams;

/** `POST /pause`: `abort` ends what runs, `wait` lets it end, and both refuse what comes; `keep` freezes both. */
async function pause({ engine }: EngineContext, exchange: Exchange): Promise<void> {
  const query = queryOf(exchange);
  const mode = query.get("mode") ?? "abort";
  if (!["abort", "wait", "keep"].includes(mode)) throw new ApiError(400, "mode: Input should be abort, wait or keep");
  if (mode === "wait") await engine.untilIdle();
  await engine.pause({ aborts: mode === "abort", refuses: mode !== "keep" });
  if (query.get("clear_cache") !== "false") engine.resetPrefixCache();
  sendJson(exchange, 200, { status: "paused" });
}

function resume({ engine }: EngineContext, exchange: Exchange): void {
  engine.resume();
  sendJson(exchange, 200, { status: "resumed" });
}

function isPaused({ engine }: EngineContext, exchange: Exchange): void {
  sendJson(exchange, 200, { is_paused: engine.isPaused });
}

/** Weights are written between two other calls, and not while requests run. */
function startWeightUpdate({ engine }: EngineContext, exchange: Exchange): void {
  if (!engine.isPaused && engine.activeCount() > 0) throw new ApiError(409, "Requests are running: pause first.");
  sendJson(exchange, 200, { message: "Weight update started" });
}

function updateWeights(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  if (body.update_info === undefined && body.weight_dir === undefined)
    throw new ApiError(400, "update_info is missing");
  context.engine.resetPrefixCache();
  sendJson(exchange, 200, { message: "Weights updated", status: "ok" });
}

function finishWeightUpdate({ engine }: EngineContext, exchange: Exchange, body: JsonObject): void {
  engine.weightVersion = optionalString(body, "weight_version") ?? engine.weightVersion;
  sendJson(exchange, 200, { message: "Weight update finished" });
}

function initTransferEngine({ engine }: EngineContext, exchange: Exchange, body: JsonObject): void {
  joinGroup(engine, optionalObject(body, "init_info") ?? {});
  sendJson(exchange, 200, { message: "Weight transfer engine initialised" });
}

/** `POST /pause_generation`: in every mode requests that come wait, and those that run are aborted, or stay. */
async function pauseGeneration({ engine }: EngineContext, exchange: Exchange, body: JsonObject): Promise<void> {
  const mode = optionalString(body, "mode") ?? "abort";
  if (!["abort", "retract", "in_place"].includes(mode)) throw new ApiError(400, `unknown mode ${mode}`);
  await engine.pause({ aborts: mode === "abort", refuses: false });
  sendJson(exchange, 200, { message: "Generation paused successfully.", status: "ok" });
}

function continueGeneration({ engine }: EngineContext, exchange: Exchange): void {
  engine.resume();
  sendJson(exchange, 200, { message: "Generation continued successfully.", status: "ok" });
}

/** `POST /abort_request`: ids that begin with `rid`, or all. Answered without a body. */
function abortRequest({ live }: EngineContext, { response }: Exchange, body: JsonObject): void {
  const rid = optionalString(body, "rid") ?? "";
  const isForAll = optionalBoolean(body, "abort_all") === true;
  for (const request of [...live]) if (isForAll || (rid !== "" && request.rid?.startsWith(rid))) request.abort();
  response.writeHead(200, { "content-length": 0 }).end();
}

/** SGLang answers `null`. Tags are those of vLLM, and `cuda_graph`. */
async function releaseMemory({ engine }: EngineContext, exchange: Exchange, body: JsonObject): Promise<void> {
  if (engine.activeCount() > 0 && !engine.isPaused)
    throw new ApiError(400, "Requests are running: memory not released.");
  await engine.fallAsleep(1, tagsOf(body));
  sendJson(exchange, 200, null);
}

function resumeMemory({ engine }: EngineContext, exchange: Exchange, body: JsonObject): void {
  engine.wakeUp(tagsOf(body));
  sendJson(exchange, 200, null);
}

const tagsOf = ({ tags }: JsonObject): readonly string[] =>
  Array.isArray(tags) ? sleepTags.filter((tag) => tags.includes(tag)) : sleepTags;

/** Updates of SGLang: they flush the cache unless the body says otherwise, and end requests only if it says so. */
function sglangUpdate(needed: string): Handler {
  return ({ engine, live }, exchange, body) => {
    if (body[needed] === undefined) throw new ApiError(400, `${needed} is missing`);
    if (optionalBoolean(body, "abort_all_requests")) for (const request of [...live]) request.abort();
    const message = "Weights updated.";
    if ((optionalBoolean(body, "flush_cache") ?? true) && !engine.resetPrefixCache()) {
      sendJson(exchange, 400, { success: false, message: "Requests are running: cache not flushed." });
      return;
    }
    engine.weightVersion = optionalString(body, "weight_version") ?? engine.weightVersion;
    sendJson(exchange, 200, {
      success: true,
      message,
      num_paused_requests: engine.isPaused ? engine.activeCount() : 0,
    });
  };
}

/** `POST /update_weight_version` aborts everything by default. */
function updateVersion({ engine, live }: EngineContext, exchange: Exchange, body: JsonObject): void {
  const version = required(optionalString(body, "new_version"), "new_version");
  if (optionalBoolean(body, "abort_all_requests") ?? true) for (const request of [...live]) request.abort();
  engine.weightVersion = version;
  sendJson(exchange, 200, { success: true, message: "Weight version updated.", new_version: version });
}

function initUpdateGroup({ engine }: EngineContext, exchange: Exchange, body: JsonObject): void {
  joinGroup(engine, body);
  sendJson(exchange, 200, { success: true, message: "Group joined." });
}

/** @throws ApiError 400 for an incomplete body */
function joinGroup(engine: EngineContext["engine"], fields: JsonObject): void {
  for (const name of ["master_address", "master_port", "rank_offset", "world_size"]) {
    if (fields[name] === undefined) throw new ApiError(400, `${name} is missing`);
  }
  engine.rankOffset = Number(fields.rank_offset);
}

function loads({ engine, clock }: EngineContext, exchange: Exchange): void {
  const { running, waiting } = engine.stats();
  const one = { dp_rank: 0, num_running_reqs: running, num_waiting_reqs: waiting, num_total_reqs: running + waiting };
  sendJson(exchange, 200, { timestamp: clock.wallMs() / 1_000, version: "simulated", loads: [one] });
}

const done: Handler = (_, exchange) => sendJson(exchange, 200, { success: true, message: "Done." });
const version: Handler = ({ engine }, exchange) => sendJson(exchange, 200, { weight_version: engine.weightVersion });
const modelInfo: Handler = ({ engine, models }, exchange) =>
  sendJson(exchange, 200, { model_path: models[0], is_generation: true, weight_version: engine.weightVersion });

const on = (flavour: "vllm" | "sglang", methods: Route["methods"]): Route => {
  return { methods, isModelRequest: false, isGuarded: true, onlyFor: flavour };
};

/** By path. */
export const trainingRoutes: Readonly<Record<string, Route>> = {
  "/pause": on("vllm", { POST: pause }),
  "/resume": on("vllm", { POST: resume }),
  "/is_paused": on("vllm", { GET: isPaused }),
  "/start_weight_update": on("vllm", { POST: startWeightUpdate }),
  "/update_weights": on("vllm", { POST: updateWeights }),
  "/finish_weight_update": on("vllm", { POST: finishWeightUpdate }),
  "/weight_info": on("vllm", { GET: version }),
  "/get_world_size": on("vllm", { GET: (_, exchange) => sendJson(exchange, 200, { world_size: 1 }) }),
  "/init_weight_transfer_engine": on("vllm", { POST: initTransferEngine }),
  "/collective_rpc": on("vllm", { POST: (_, exchange) => sendJson(exchange, 200, { results: [null] }) }),
  "/abort_request": on("sglang", { POST: abortRequest }),
  "/pause_generation": on("sglang", { POST: pauseGeneration }),
  "/continue_generation": on("sglang", { POST: continueGeneration }),
  "/release_memory_occupation": on("sglang", { POST: releaseMemory, GET: releaseMemory }),
  "/resume_memory_occupation": on("sglang", { POST: resumeMemory, GET: resumeMemory }),
  "/update_weights_from_disk": on("sglang", { POST: sglangUpdate("model_path") }),
  "/update_weights_from_distributed": on("sglang", { POST: sglangUpdate("names") }),
  "/update_weights_from_tensor": on("sglang", { POST: sglangUpdate("serialized_named_tensors") }),
  "/begin_weight_update": on("sglang", { POST: done }),
  "/end_weight_update": on("sglang", { POST: done }),
  "/update_weight_version": on("sglang", { POST: updateVersion }),
  "/init_weights_update_group": on("sglang", { POST: initUpdateGroup }),
  "/destroy_weights_update_group": on("sglang", { POST: done }),
  "/get_weight_version": on("sglang", { GET: version }),
  "/model_info": on("sglang", { GET: modelInfo }),
  "/v1/loads": on("sglang", { GET: loads }),
};
