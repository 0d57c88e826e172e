/** SGLang's own calls for LoRA adapters, and how its requests name one. */
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { at, modelsOf, openRequest, startSim, type TestSim, untilIdle } from "./sim-client.ts";

const completions = "/v1/completions";
const prompt = "x".repeat(400);

const start = (adapters: readonly string[] = [], more: object = {}): Promise<TestSim> =>
  startSim({ adapters, parameters: { flavour: "sglang", blockSize: 16 }, ...more });
const load = (sim: TestSim, body: object) => sim.post("/load_lora_adapter", body);
const unload = (sim: TestSim, body: object) => sim.post("/unload_lora_adapter", body);
const ask = (sim: TestSim, body: object) => sim.post(completions, { prompt, max_tokens: 1, ...body });
const cached = (json: unknown): unknown => at(json, "usage", "prompt_tokens_details", "cached_tokens");

test("an adapter is loaded, asked for and unloaded", async () => {
  const sim = await start();
  const loaded = await load(sim, { lora_name: "sql", lora_path: "/adapters/sql" });
  expect([loaded.status, loaded.json.success, loaded.json.loaded_adapters]).toEqual([200, true, { sql: "sql" }]);
  expect(await modelsOf(sim)).toEqual(["tiny", "sql"]);
  expect((await ask(sim, { model: "tiny", lora_path: "sql" })).status).toBe(200);
  const gone = await unload(sim, { lora_name: "sql" });
  expect([gone.status, gone.json.success]).toEqual([200, true]);
  expect(await modelsOf(sim)).toEqual(["tiny"]);
  const refused = await ask(sim, { model: "tiny", lora_path: "sql" });
  expect([refused.status, refused.json.message]).toEqual([
    400,
    expect.stringContaining("adapters are not loaded: sql"),
  ]);
});

test("what stands behind a colon of the model's name counts before lora_path; the name alone is no adapter", async () => {
  const sim = await start(["a", "b"]);
  const warm = { model: "tiny:a", lora_path: "b" };
  expect(cached((await ask(sim, warm)).json)).toBe(0);
  expect(cached((await ask(sim, { lora_path: "a" })).json)).toBe(96);
  expect(cached((await ask(sim, { lora_path: "b" })).json)).toBe(0);
  // SGLang serves any name: the model without the adapter.
  expect(cached((await ask(sim, { model: "a" })).json)).toBe(0);
  expect(cached((await ask(sim, { model: "tiny" })).json)).toBe(96);
  expect(cached((await ask(sim, { model: "tiny:" })).json)).toBe(96);
});

test("messages take an adapter by the model's name alone; responses, rerank and score are answered by the base model", async () => {
  const sim = await start(["a"]);
  const messages = { max_tokens: 1, messages: [{ role: "user", content: "x" }] };
  const unknown = { model: "tiny:b", lora_path: "b" };
  expect((await sim.post("/v1/messages", { ...messages, lora_path: "b" })).status).toBe(200);
  expect((await sim.post("/v1/messages", { ...messages, model: "tiny:b" })).status).toBe(400);
  expect((await sim.post("/v1/responses", { input: "x", max_output_tokens: 1, ...unknown })).status).toBe(200);
  expect((await sim.post("/v1/rerank", { query: "q", documents: ["d"], ...unknown })).status).toBe(200);
  expect((await sim.post("/v1/score", { text_1: "a", text_2: "b", ...unknown })).status).toBe(200);
});

test("/generate takes lora_path as well", async () => {
  const sim = await start(["a"]);
  const asked = { text: prompt, sampling_params: { max_new_tokens: 1 } };
  expect((await sim.post("/generate", { ...asked, lora_path: "a" })).status).toBe(200);
  expect((await sim.post("/generate", { ...asked, lora_path: "b" })).status).toBe(400);
});

test("unloading waits for requests that came before, and refuses others meanwhile", async () => {
  const sim = await start(["a"], { speed: 20 });
  const open = [1, 2].map(() =>
    openRequest(sim.url + completions, { prompt, max_tokens: 20_000, stream: true, lora_path: "a" }),
  );
  await waitFor(async () => (await sim.state()).active.length === 2, { what: "two requests" });
  let isGone = false;
  const gone = unload(sim, { lora_name: "a" }).then((answer) => {
    isGone = true;
    return answer;
  });
  await waitFor(async () => !(await modelsOf(sim)).includes("a"), { what: "an adapter that takes nothing new" });
  expect((await ask(sim, { lora_path: "a" })).status).toBe(400);
  expect(isGone).toBe(false);
  open[0]!.destroy();
  await waitFor(async () => (await sim.state()).active.length === 1, { what: "one request" });
  expect(isGone).toBe(false);
  open[1]!.destroy();
  expect((await gone).status).toBe(200);
  await untilIdle(sim);
});

test("a restart ends the wait", async () => {
  const sim = await start(["a"], { speed: 20 });
  openRequest(sim.url + completions, { prompt, max_tokens: 20_000, stream: true, lora_path: "a" });
  await waitFor(async () => (await sim.state()).active.length === 1, { what: "a request" });
  const gone = unload(sim, { lora_name: "a" });
  await waitFor(async () => !(await modelsOf(sim)).includes("a"), { what: "an adapter that takes nothing new" });
  await sim.post("/sim/reset", "");
  // The call itself goes down with the process, or is answered by the one that was.
  await gone.catch(() => undefined);
  expect(await modelsOf(sim)).toEqual(["tiny", "a"]);
});

test.each([
  ["loading", "/load_lora_adapter", { lora_path: "/p" }, "lora_name"],
  ["loading", "/load_lora_adapter", { lora_name: "b" }, "lora_path"],
  ["unloading", "/unload_lora_adapter", {}, "lora_name"],
])("%s refuses %s with %j", async (_, path, body, word) => {
  const sim = await start(["a"]);
  const answer = await sim.post(path, body);
  expect([answer.status, answer.text]).toEqual([400, expect.stringContaining(word)]);
  expect(await modelsOf(sim)).toEqual(["tiny", "a"]);
});

test("one that is there is not loaded again, and one that is not there is not unloaded", async () => {
  const sim = await start(["a"]);
  const again = await load(sim, { lora_name: "a", lora_path: "/p" });
  expect([again.status, again.json.error_message]).toEqual([400, expect.stringContaining("already loaded")]);
  const absent = await unload(sim, { lora_name: "b" });
  expect([absent.status, absent.json.error_message]).toEqual([400, expect.stringContaining("b does not exist")]);
});

test("of 65 adapters the last is refused, until one is unloaded", async () => {
  const sim = await start(Array.from({ length: 64 }, (_, number) => `a${number}`));
  const late = { lora_name: "late", lora_path: "/p" };
  const refused = await load(sim, late);
  expect([refused.status, refused.json.error_message]).toEqual([400, expect.stringContaining("Maximum number")]);
  await unload(sim, { lora_name: "a3" });
  expect((await load(sim, late)).status).toBe(200);
});

test("each kind of engine has its own calls only", async () => {
  const sim = await start();
  expect((await sim.post("/v1/load_lora_adapter", { lora_name: "a", lora_path: "/p" })).status).toBe(404);
  expect((await sim.post("/v1/unload_lora_adapter", { lora_name: "a" })).status).toBe(404);
  const vllm = await startSim();
  expect((await load(vllm, { lora_name: "a", lora_path: "/p" })).status).toBe(404);
  expect((await unload(vllm, { lora_name: "a" })).status).toBe(404);
});
