import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { chat, errorOf, type Json, post } from "./client.ts";
import { httpEngine, type SeenRequest } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

type Refuse = (model: string) => readonly [status: number, body: Json];

const vllm: Refuse = (model) => [
  404,
  { error: { message: `The model \`${model}\` does not exist.`, type: "NotFoundError", param: "model", code: 404 } },
];

const sglangAdapter: Refuse = (model) => [
  400,
  { object: "error", message: `The following requested LoRA adapters are not loaded: ${model}\nLoaded adapters: .` },
];

/** An engine whose models can change, as when its pod's address is given to another. */
async function changingEngine(refuse: Refuse, ...initial: string[]) {
  const listed: Json[] = initial.map((id) => ({ id }));
  const answer = ({ body, response }: SeenRequest): void => {
    const { model } = JSON.parse(body.toString()) as { model: string };
    const [status, written] = listed.some(({ id }) => id === model) ? [200, { model, choices: [] }] : refuse(model);
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(written));
  };
  const engine = await httpEngine(rig, answer, { listed });
  return { ...engine, serves: (...ids: string[]) => listed.splice(0, listed.length, ...ids.map((id) => ({ id }))) };
}

// A list of models was up to 30 s old: an adapter unloaded at one of two engines, or an address given to another model, was 404
// for as long, while another engine served it. Mechanism: an engine's word about a model was only the client's answer.
describe.each([
  ["as vLLM", vllm],
  ["as SGLang an adapter", sglangAdapter],
])("an engine that refuses a model %s", (_, refuse) => {
  test("is asked for its list again, and no client sees it while another engine serves the model", async () => {
    const [one, two] = [await changingEngine(refuse, "base", "lora"), await changingEngine(refuse, "base", "lora")];
    const router = await rig.router({ engines: [one.url, two.url], config: { policy: "round_robin" } });
    one.serves("base");
    for (let i = 0; i < 8; i++)
      expect((await post(`${router.url}/v1/chat/completions`, chat({ model: "lora" }))).status).toBe(200);
    await waitFor(async () => (await router.engines()).some(({ models }) => models?.length === 1), {
      what: "a new list",
    });
    const page = await router.metrics();
    expect(page.sum("espalier_proxy_retries_total", { budget: "charged" })).toBe(0);
    expect(page.sum("espalier_proxy_attempts_total", { outcome: "unknown_model" })).toBeGreaterThan(0);
  });
});

test("engines that swap their models are found by the first request for either", async () => {
  const [one, two] = [await changingEngine(vllm, "a"), await changingEngine(vllm, "b")];
  const router = await rig.router({ engines: [one.url, two.url] });
  one.serves("b");
  two.serves("a");
  for (const model of ["a", "b", "a", "b"]) {
    expect((await post(`${router.url}/v1/chat/completions`, chat({ model }))).status).toBe(200);
  }
});

test("a model that no engine serves any more is 404, once", async () => {
  const engine = await changingEngine(vllm, "a", "b");
  const router = await rig.router({ engines: [engine.url] });
  engine.serves("b");
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ model: "a" }));
  expect([answer.status, errorOf(answer).code]).toEqual([404, "model_not_found"]);
  expect(engine.requests).toHaveLength(1);
});

test("an adapter that an engine has begun to serve is found by the request after the first", async () => {
  const engine = await changingEngine(vllm, "base");
  const router = await rig.router({ engines: [engine.url] });
  engine.serves("base", "lora");
  const ask = async () => (await post(`${router.url}/v1/chat/completions`, chat({ model: "lora" }))).status;
  await waitFor(async () => (await ask()) === 200, { what: "the adapter" });
});

test("a mistyped model is 503 while an engine may be starting, and 404 once it counts as unreachable", async () => {
  const engine = await changingEngine(vllm, "a");
  const router = await rig.router({
    engines: [engine.url, "http://127.0.0.1:9"],
    config: { health: { interval: "100ms", timeout: "2s" } },
    usable: 1,
  });
  const ask = async () => (await post(`${router.url}/v1/chat/completions`, chat({ model: "typo" }))).status;
  expect(await ask()).toBe(503);
  await waitFor(async () => (await router.engines()).some(({ state }) => state === "unreachable"), {
    what: "the state",
  });
  expect(await ask()).toBe(404);
});
