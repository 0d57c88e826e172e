import { type ApiObject, createKubernetesApi, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { ask } from "./cached-turns.ts";
import { call, type Json } from "./client.ts";
import { gatewayOf, pickerConfig } from "./gateway.ts";
import { serveApi } from "./kubernetes-server.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const deadlineMs = 30_000;
const pods = "/api/v1/namespaces/ai/pods";
const inferencePools = "/apis/inference.networking.k8s.io/v1/namespaces/ai/inferencepools";
const objectives = "/apis/llm-d.ai/v1alpha2/namespaces/ai/inferenceobjectives";
const rewrites = "/apis/llm-d.ai/v1alpha2/namespaces/ai/inferencemodelrewrites";

const matchLabels = { app: "vllm" };
const poolRef = { group: "inference.networking.k8s.io", name: "chat" };

const objective = (name: string, priority: number): ApiObject => ({ metadata: { name }, spec: { poolRef, priority } });

const rewrite = (model: string, ...targets: readonly string[]): ApiObject => ({
  metadata: { name: "names", namespace: "ai", creationTimestamp: "2026-01-01T00:00:00Z" },
  spec: {
    poolRef,
    rules: [
      {
        matches: [{ model: { type: "Exact", value: model } }],
        targets: targets.map((modelRewrite) => ({ modelRewrite })),
      },
    ],
  },
});

/** A router that follows the pool `ai/chat`, whose pod is one simulated engine. */
async function startPool(kinds: readonly string[] = [objectives, rewrites]) {
  const [sim] = (await rig.sims(1)) as [Sim];
  const port = Number(new URL(sim.url).port);
  const api = createKubernetesApi();
  for (const kind of kinds) api.serve(kind);
  api.put(pods, {
    metadata: { name: "a", namespace: "ai", labels: matchLabels },
    spec: { containers: [{ ports: [{ name: "http", containerPort: port }] }] },
    status: { phase: "Running", podIP: "127.0.0.1", conditions: [{ type: "Ready", status: "True" }] },
  });
  const spec = { selector: { matchLabels }, targetPorts: [{ number: port }] };
  api.put(inferencePools, { metadata: { name: "chat" }, spec });
  const kubernetes = { "api-server": await serveApi(rig, api) };
  const start = async (config: Json = {}): Promise<RunningRouter> => {
    const discovery = { "inference-pools": ["ai/chat"], kubernetes };
    const router = await rig.router({ usable: 1, config: { discovery, ...config } });
    return router;
  };
  return { api, start, sim };
}

const send = async (router: RunningRouter, body: Json, headers: Readonly<Record<string, string>> = {}) =>
  (await ask(router, "/v1/completions", { prompt: "hello", max_tokens: 1, ...body }, headers)).status;

const modelsOf = async (router: RunningRouter): Promise<readonly string[]> => {
  const { json } = await call(`${router.url}/v1/models`);
  return (json.data as readonly { readonly id: string }[]).map(({ id }) => id);
};

test("a model that a rewrite names is served by its target, as long as the rewrite is there", async () => {
  const { api, start } = await startPool();
  api.put(rewrites, rewrite("assistant", "tiny"));
  const router = await start();
  expect(await modelsOf(router)).toEqual(["tiny", "assistant"]);
  expect(await send(router, { model: "assistant" })).toBe(200);
  expect(await send(router, { model: "tiny" })).toBe(200);
  expect(await send(router, { model: "helper" })).toBe(404);

  api.put(rewrites, rewrite("helper", "tiny"));
  await waitFor(async () => (await send(router, { model: "helper" })) === 200, { what: "the new name", deadlineMs });
  expect(await send(router, { model: "assistant" })).toBe(404);
  api.remove(rewrites, "names");
  await waitFor(async () => (await send(router, { model: "helper" })) === 404, { what: "the end of it", deadlineMs });
});

test("a request that names an objective is of the class of its priority", async () => {
  const { api, start } = await startPool();
  api.put(objectives, objective("urgent", 100));
  api.put(objectives, objective("job", -1));
  const router = await start();
  const by = (name: string) => ({ "x-llm-d-inference-objective": name });
  expect(await send(router, {}, by("urgent"))).toBe(200);
  expect(await send(router, {}, by("job"))).toBe(200);
  expect(await send(router, {}, { "x-gateway-inference-objective": "job" })).toBe(200);
  expect(await send(router, {}, by("unknown"))).toBe(200);
  const counts = async () => {
    const page = await router.metrics();
    return ["interactive", "default", "batch"].map((name) =>
      page.sum("espalier_admission_tokens_total", { class: name, kind: "output" }),
    );
  };
  await router.untilIdle();
  expect(await counts()).toEqual([1, 1, 2]);

  api.put(objectives, objective("job", 0));
  const page = async () => (await router.metrics()).sum("espalier_discovery_inference_objectives");
  expect(await page()).toBe(2);
  await waitFor(
    async () => {
      await send(router, {}, by("job"));
      return (await counts())[1]! > 1;
    },
    { what: "the new priority", deadlineMs },
  );
});

test("a cluster without these kinds is like any other", async () => {
  const { start } = await startPool([]);
  const router = await start();
  expect(await send(router, {}, { "x-llm-d-inference-objective": "urgent" })).toBe(200);
  const page = await router.metrics();
  expect(page.sum("espalier_discovery_source_up", { source: "requests of inference pool ai/chat" })).toBe(1);
  expect(router.lines.filter(({ message }) => message.startsWith("the cluster has no "))).toHaveLength(2);
});

test("an endpoint picker goes by both: the gateway gets the body with the target's name, and objectives say the class", async () => {
  const { api, start, sim } = await startPool();
  api.put(rewrites, rewrite("assistant", "tiny"));
  api.put(objectives, objective("job", -1));
  const router = await start({ "endpoint-picker": pickerConfig });
  const exchange = gatewayOf(rig, router).exchange();
  const prompt = { model: "assistant", messages: [{ role: "user", content: "hello" }] };
  exchange.head({ headers: { "x-gateway-inference-objective": "job" } }).body(JSON.stringify(prompt));
  const { destinations, body, removed } = await exchange.routed();
  expect(destinations).toEqual([sim.id]);
  expect(JSON.parse(body.toString())).toEqual({ ...prompt, model: "tiny" });
  expect(removed).toContain("x-gateway-inference-objective");
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  exchange.answer(200, { "content-type": "application/json" }).answerBody(JSON.stringify({ usage }));
  expect(await exchange.next()).toHaveProperty("responseHeaders");
  expect(await exchange.next()).toHaveProperty("responseBody");
  await router.untilIdle();
  const page = await router.metrics();
  expect(page.sum("espalier_admission_tokens_total", { class: "batch", kind: "output" })).toBe(1);
});
