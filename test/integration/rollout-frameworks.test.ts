import { afterEach, expect, test } from "vitest";
import { call, type Json, post } from "./client.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** One call as a framework makes it, and what it reads of the answer. */
interface Call {
  /** `METHOD /path`, with `{0}` and `{1}` for the URLs of the engines, and `{id}` for the id of the first. */
  readonly ask: string;
  readonly body?: Json;
  readonly headers?: Readonly<Record<string, string>>;
  /** 200 unless given. */
  readonly status?: number;
  readonly reads?: Json;
}

interface Framework {
  readonly name: string;
  readonly engines: "vllm" | "sglang";
  readonly calls: readonly Call[];
}

const ids = [1, 2, 3, 4, 5, 6, 7, 8];
const sampling = { temperature: 1, top_p: 1, max_new_tokens: 4, skip_special_tokens: true };
const generate = { sampling_params: sampling, return_logprob: true, input_ids: ids };
const generated = { meta_info: { finish_reason: { type: "length" }, weight_version: "default" } };
const tokens = { model: "tiny", token_ids: ids, sampling_params: { max_tokens: 4, logprobs: 1 } };
const tokensBack = { choices: [{ finish_reason: "length" }] };
const group = { master_address: "127.0.0.1", master_port: 29_500, rank_offset: 1, world_size: 3, group_name: "g" };
const twoEngines = { workers: [{ error: null }, { error: null }] };

/** By `pip` packages and sources of the frameworks, read in August 2026; `docs/start/rl.md` says which flags lead here. */
const frameworks: readonly Framework[] = [
  {
    name: "slime",
    engines: "sglang",
    calls: [
      { ask: "POST /workers", body: { url: "{0}", worker_type: "regular" }, status: 202 },
      { ask: "POST /workers", body: { url: "{1}", worker_type: "regular" }, status: 202 },
      { ask: "GET /workers", reads: { workers: [{ url: "{0}", id: "{id}" }, { url: "{1}" }] } },
      { ask: "POST /generate", body: generate, headers: { "x-smg-routing-key": "sample-1" }, reads: generated },
      { ask: "POST /generate", body: { ...generate, rid: "r1" }, reads: { meta_info: { id: "r1" } } },
      { ask: "POST /abort_request", body: { rid: "r1" } },
      { ask: "POST /pause_generation", body: {}, reads: { status: "ok" } },
      { ask: "GET /flush_cache" },
      { ask: "POST /release_memory_occupation", body: {}, reads: twoEngines },
      { ask: "POST /resume_memory_occupation", body: { tags: ["weights"] } },
      { ask: "POST /resume_memory_occupation", body: { tags: ["kv_cache", "cuda_graph"] } },
      {
        ask: "POST /init_weights_update_group",
        body: group,
        status: 400,
        reads: { error: { code: "engine_not_named" } },
      },
      {
        ask: "POST /init_weights_update_group",
        body: group,
        headers: { "x-espalier-engine": "{0}" },
        reads: { success: true },
      },
      {
        ask: "POST /update_weights_from_distributed",
        body: {
          names: ["w"],
          dtypes: ["bf16"],
          shapes: [[1]],
          group_name: "g",
          flush_cache: false,
          weight_version: "7",
        },
        reads: { success: true },
      },
      {
        ask: "POST /update_weights_from_disk",
        body: { model_path: "/m", weight_version: "8" },
        reads: { success: true },
      },
      { ask: "POST /continue_generation", body: {}, reads: { status: "ok" } },
      { ask: "GET /get_weight_version", reads: { weight_version: "8" } },
      { ask: "GET /v1/loads?include=core", reads: { loads: [{ num_total_reqs: 0 }, { num_total_reqs: 0 }] } },
      { ask: "POST /generate", body: generate, reads: { meta_info: { weight_version: "8" } } },
      { ask: "DELETE /workers/{id}", status: 202 },
    ],
  },
  {
    name: "miles",
    engines: "sglang",
    calls: [
      { ask: "POST /add_worker?url={0}" },
      { ask: "POST /add_worker?url={1}" },
      { ask: "GET /list_workers", reads: { urls: ["{0}", "{1}"] } },
      { ask: "POST /generate", body: { ...generate, input_ids: [ids, ids] } },
      { ask: "POST /flush_cache", body: {} },
      { ask: "POST /pause_generation", body: { mode: "retract" } },
      { ask: "POST /begin_weight_update", body: { selector: "all" }, reads: { success: true } },
      {
        ask: "POST /update_weight_version",
        body: { new_version: "3", abort_all_requests: false },
        reads: { new_version: "3" },
      },
      { ask: "POST /end_weight_update", body: {}, reads: { success: true } },
      { ask: "POST /continue_generation", body: {} },
      { ask: "GET /model_info", reads: { weight_version: "3" } },
      {
        ask: "POST /v1/chat/completions",
        body: { model: "tiny", messages: [{ role: "user", content: "hi" }], max_tokens: 4 },
        headers: { "x-smg-routing-key": "session-1" },
      },
      { ask: "DELETE /workers/{0}", status: 202 },
      { ask: "POST /remove_worker?url={1}" },
      { ask: "GET /list_workers", reads: { urls: [] } },
    ],
  },
  {
    name: "SkyRL",
    engines: "vllm",
    calls: [
      { ask: "GET /health" },
      { ask: "POST /workers", body: { url: "{0}" }, status: 202 },
      { ask: "POST /add_worker?url={1}" },
      { ask: "POST /inference/v1/generate", body: tokens, headers: { "x-session-id": "t1" }, reads: tokensBack },
      {
        ask: "POST /tokenize",
        body: { model: "tiny", prompt: "a b", add_special_tokens: true },
        reads: { max_model_len: 32_768 },
      },
      { ask: "GET /get_world_size", reads: { world_size: 2 } },
      { ask: "POST /init_weight_transfer_engine", body: { init_info: group }, status: 400 },
      { ask: "POST /init_weight_transfer_engine", body: { init_info: group }, headers: { "x-espalier-engine": "{1}" } },
      { ask: "POST /pause?mode=keep&clear_cache=true", reads: { status: "paused" } },
      { ask: "GET /is_paused", reads: { is_paused: true } },
      { ask: "POST /start_weight_update" },
      { ask: "POST /update_weights", body: { update_info: { names: ["w"], dtype_names: ["bf16"], shapes: [[1]] } } },
      { ask: "POST /finish_weight_update", body: { weight_version: "2" } },
      { ask: "POST /reset_prefix_cache", body: { reset_running_requests: true }, reads: { success: true } },
      { ask: "POST /resume", reads: { status: "resumed" } },
      { ask: "POST /sleep?level=1&tags=weights&tags=kv_cache" },
      { ask: "POST /wake_up?tags=weights" },
      { ask: "POST /wake_up?tags=kv_cache" },
      { ask: "POST /collective_rpc", body: { method: "skyrl_start_weight_update" } },
      { ask: "GET /weight_info", reads: { weight_version: "2" } },
      { ask: "POST /inference/v1/generate", body: tokens, headers: { "x-session-id": "t1" }, reads: tokensBack },
      { ask: "POST /finish_session?session_id=t1", reads: { status: "ok", session_id: "t1" } },
      { ask: "POST /programs/release", body: { program_id: "t1" }, reads: { program_id: "t1", released: true } },
    ],
  },
  {
    name: "prime-rl",
    engines: "vllm",
    calls: [
      { ask: "POST /add_worker?url={0}" },
      { ask: "POST /add_worker?url={1}" },
      { ask: "GET /v1/models", reads: { data: [{ id: "tiny" }] } },
      { ask: "POST /init_broadcaster", body: { host: "h", port: 1, rank_offset: 0 }, status: 400 },
      { ask: "POST /pause?mode=keep&clear_cache=false" },
      { ask: "POST /update_weights", body: { weight_dir: "/w" }, reads: { status: "ok" } },
      { ask: "POST /resume" },
      {
        ask: "POST /inference/v1/generate",
        body: { ...tokens, cache_salt: "1" },
        headers: { "x-session-id": "trajectory" },
        reads: tokensBack,
      },
      { ask: "POST /finish_session?session_id=trajectory", reads: { status: "ok" } },
    ],
  },
  {
    name: "NeMo RL",
    engines: "sglang",
    calls: [
      { ask: "POST /workers", body: { url: "{0}", worker_type: "regular" }, status: 202 },
      { ask: "GET /workers", reads: { workers: [{ url: "{0}" }] } },
      { ask: "POST /add_worker?url={1}" },
      {
        ask: "POST /generate",
        body: { sampling_params: sampling, return_logprob: true, input_ids: ids },
        reads: generated,
      },
      { ask: "GET /flush_cache" },
      { ask: "POST /release_memory_occupation", body: { tags: ["weights", "kv_cache", "cuda_graph"] } },
      { ask: "POST /resume_memory_occupation", body: { tags: ["weights", "kv_cache", "cuda_graph"] } },
      {
        ask: "POST /update_weights_from_tensor",
        body: {
          serialized_named_tensors: ["x"],
          load_format: "flattened_bucket",
          flush_cache: false,
          weight_version: "1",
        },
        headers: { "x-espalier-engine": "{id}" },
        reads: { success: true },
      },
      { ask: "DELETE /workers/{id}", status: 202 },
    ],
  },
  {
    name: "verl",
    engines: "sglang",
    calls: [
      { ask: "GET /health" },
      { ask: "POST /add_worker?url={0e}" },
      { ask: "POST /abort_request", body: { rid: "", abort_all: true } },
      { ask: "POST /remove_worker?url={0e}" },
      { ask: "POST /remove_worker?url={0e}" },
    ],
  },
];

/** Puts the engines' addresses into a call. */
function fill<Value>(value: Value, sims: readonly Sim[]): Value {
  const text = JSON.stringify(value)
    .replaceAll(/\{([01])(e?)\}/g, (_, at, encoded) => {
      const { url } = sims[Number(at)]!;
      return encoded ? encodeURIComponent(url) : url;
    })
    .replaceAll("{id}", sims[0]!.id);
  return JSON.parse(text) as Value;
}

async function make(router: RunningRouter, { ask, body, headers = {} }: Call) {
  const [method = "", path = ""] = ask.split(" ");
  // A URL in the path is encoded there, in a query it is not.
  const encoded = path.replace(/^(\/workers\/)(http.*)$/, (_, start, url) => start + encodeURIComponent(url));
  const url = (router.router.rolloutsUrl ?? "") + encoded;
  return body && method === "POST" ? post(url, body, headers) : call(url, { method, headers });
}

test.each(frameworks)("$name: its calls have the answers that it reads", async ({ engines, calls }) => {
  const sims = await rig.sims(2, { parameters: { flavour: engines, maxModelLength: 32_768 } });
  const router = await rig.router({ config: { rollouts: { port: 0 } } });
  for (const written of calls) {
    const { status = 200, reads = {}, ...asked } = fill(written, sims);
    const answer = await make(router, asked);
    expect([asked.ask, answer.status, answer.status === status ? "" : answer.text]).toEqual([asked.ask, status, ""]);
    if (Object.keys(reads).length > 0) expect(answer.json, asked.ask).toMatchObject(reads);
  }
  await router.untilIdle();
  for (const { breaker } of await router.engines()) expect(breaker.state).toBe("closed");
});
