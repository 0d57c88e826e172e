import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { startSim } from "./sim-client.ts";

const ask = { model: "tiny", token_ids: [1, 2, 3, 4], sampling_params: { max_tokens: 4, logprobs: 1 } };
const long = { ...ask, sampling_params: { max_tokens: 4_000, ignore_eos: true } };
const sglang = { parameters: { flavour: "sglang" as const } };
const generate = { input_ids: [1, 2, 3, 4], sampling_params: { max_new_tokens: 4 }, return_logprob: true };
const endless = { ...generate, sampling_params: { max_new_tokens: 4_000, ignore_eos: true } };
const group = { master_address: "h", master_port: 1, rank_offset: 3, world_size: 5 };

test("vLLM's API of token ids answers ids, their log-probabilities, and the end of the answer", async () => {
  const sim = await startSim();
  const { json } = await sim.post("/inference/v1/generate", ask);
  const [choice] = json.choices as [
    { token_ids: number[]; logprobs: { content: { token: string; logprob: number }[] } },
  ];
  expect(json).toMatchObject({ choices: [{ index: 0, finish_reason: "length" }], usage: { completion_tokens: 4 } });
  expect(choice.logprobs.content.map(({ token }) => token)).toEqual(choice.token_ids.map((id) => `token_id:${id}`));
  expect(choice.logprobs.content.every(({ logprob }) => logprob < 0)).toBe(true);
  const streamed = await sim.post("/inference/v1/generate", { ...ask, stream: true });
  const events = streamed.text.match(/^data: \{.*$/gm)!.map((line) => JSON.parse(line.slice(6)));
  expect(events.flatMap(({ choices }) => choices[0].token_ids)).toEqual(choice.token_ids);
  expect((await sim.post("/inference/v1/generate", { model: "tiny", token_ids: "a" })).status).toBe(400);
});

test.each(["abort", "wait"])("vLLM refuses requests while it is paused with mode %s", async (mode) => {
  const sim = await startSim({ speed: mode === "abort" ? 1 : 1_000 });
  const running = sim.post("/inference/v1/generate", long);
  await waitFor(async () => (await sim.state()).stats.running === 1, { what: "a running request" });
  expect((await sim.post(`/pause?mode=${mode}`, {})).json).toEqual({ status: "paused" });
  const [{ finish_reason }] = (await running).json.choices as [{ finish_reason: string }];
  expect(finish_reason).toBe(mode === "abort" ? "abort" : "length");
  expect((await sim.post("/inference/v1/generate", ask)).status).toBe(503);
  expect((await sim.get("/health")).status).toBe(200);
  expect((await sim.get("/is_paused")).json).toEqual({ is_paused: true });
  expect((await sim.post("/resume", {})).json).toEqual({ status: "resumed" });
  expect((await sim.post("/inference/v1/generate", ask)).status).toBe(200);
});

test("vLLM keeps what runs and what comes while it is paused with mode keep, also over a sleep", async () => {
  const sim = await startSim();
  await sim.post("/pause?mode=keep&clear_cache=false", {});
  let answered = false;
  const answer = sim.post("/inference/v1/generate", ask).then((got) => {
    answered = true;
    return got;
  });
  await waitFor(async () => (await sim.state()).stats.waiting === 1, { what: "the request in the engine" });
  await sim.post("/wake_up", {});
  const before = (await sim.state()).engineMs;
  await waitFor(async () => (await sim.state()).engineMs > before + 10_000, { what: "ten seconds of engine time" });
  expect(answered).toBe(false);
  await sim.post("/resume", {});
  expect((await answer).status).toBe(200);
});

test("a weight update of vLLM names the version, voids the cache, and needs a pause while requests run", async () => {
  const sim = await startSim({ speed: 1 });
  void sim.post("/inference/v1/generate", long);
  await waitFor(async () => (await sim.state()).stats.running === 1, { what: "a running request" });
  expect((await sim.post("/start_weight_update", {})).status).toBe(409);
  await sim.post("/pause", {});
  expect((await sim.post("/start_weight_update", {})).status).toBe(200);
  expect((await sim.post("/update_weights", {})).status).toBe(400);
  expect((await sim.post("/update_weights", { update_info: {} })).status).toBe(200);
  expect((await sim.post("/finish_weight_update", { weight_version: "7" })).status).toBe(200);
  expect((await sim.get("/weight_info")).json).toEqual({ weight_version: "7" });
  expect((await sim.post("/init_weight_transfer_engine", { init_info: group })).status).toBe(200);
  expect((await sim.state()) as unknown).toMatchObject({ weightVersion: "7", rankOffset: 3, isPaused: true });
});

test("SGLang flushes no cache while requests run, and pauses and aborts by mode and id", async () => {
  const sim = await startSim({ ...sglang, speed: 1 });
  const [one, two] = [
    sim.post("/generate", { ...endless, rid: "a-1" }),
    sim.post("/generate", { ...endless, rid: "b-1" }),
  ];
  await waitFor(async () => (await sim.state()).stats.running === 2, { what: "two running requests" });
  expect((await sim.get("/flush_cache")).status).toBe(400);
  expect((await sim.post("/update_weights_from_disk", { model_path: "/m" })).status).toBe(400);
  expect((await sim.post("/release_memory_occupation", {})).status).toBe(400);
  expect((await sim.get("/v1/loads")).json).toMatchObject({ loads: [{ num_total_reqs: 2 }] });
  await sim.post("/abort_request", { rid: "a-" });
  expect((await one).json).toMatchObject({ meta_info: { id: "a-1", finish_reason: { type: "abort" } } });
  expect((await sim.post("/pause_generation", { mode: "retract" })).json).toMatchObject({ status: "ok" });
  expect((await sim.get("/v1/loads")).json).toMatchObject({ loads: [{ num_total_reqs: 1 }] });
  await sim.post("/pause_generation", {});
  expect((await two).json).toMatchObject({ meta_info: { finish_reason: { type: "abort" } } });
  await sim.post("/update_weights_from_disk", { model_path: "/m", weight_version: "2" });
  await sim.post("/continue_generation", {});
  const { json } = await sim.post("/generate", generate);
  const { output_token_logprobs: logprobs } = json.meta_info as { output_token_logprobs: [number, number, null][] };
  expect(json).toMatchObject({ meta_info: { weight_version: "2" } });
  expect(logprobs.map(([, id]) => id)).toEqual(json.output_ids);
});

test("SGLang answers null when it releases memory and takes it back, and requests wait meanwhile", async () => {
  const sim = await startSim(sglang);
  expect((await sim.post("/release_memory_occupation", {})).text).toBe("null");
  const waiting = sim.post("/generate", generate);
  await waitFor(async () => (await sim.state()).stats.waiting === 1, { what: "the request in the engine" });
  expect((await sim.post("/resume_memory_occupation", { tags: ["weights"] })).text).toBe("null");
  await sim.post("/resume_memory_occupation", { tags: ["kv_cache"] });
  expect((await waiting).status).toBe(200);
  await sim.post("/update_weight_version", { new_version: "9", abort_all_requests: false });
  expect((await sim.get("/get_weight_version")).json).toEqual({ weight_version: "9" });
  expect((await sim.post("/init_weights_update_group", { rank_offset: 1 })).status).toBe(400);
  expect((await sim.post("/init_weights_update_group", group)).status).toBe(200);
});
