import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { followEvents } from "./event-feed.ts";
import { at, openRequest, startSim, type TestSim } from "./sim-client.ts";

const completions = "/v1/completions";
const prompt = "x".repeat(400);

const startWithAdapters = (more: object = {}): Promise<TestSim> =>
  startSim({ adapters: ["adapter-a", "adapter-b"], ...more });

async function cachedFor(sim: TestSim, body: object): Promise<unknown> {
  const { json } = await sim.post(completions, { prompt, max_tokens: 1, ...body });
  return at(json, "usage", "prompt_tokens_details", "cached_tokens");
}

test("adapters are further models whose parent is the first model", async () => {
  const sim = await startWithAdapters({ models: ["tiny", "alias"], parameters: { maxModelLength: 500 } });
  const data = at((await sim.get("/v1/models")).json, "data") as { id: string; parent: unknown; root: string }[];
  expect(data.map(({ id, root, parent }) => [id, root, parent])).toEqual([
    ["tiny", "tiny", null],
    ["alias", "tiny", null],
    ["adapter-a", "adapter-a", "tiny"],
    ["adapter-b", "adapter-b", "tiny"],
  ]);
  expect(data.map((model) => at(model, "max_model_len"))).toEqual([500, 500, null, null]);
});

test.each(["vllm", "sglang"] as const)(
  "%s: adapters share no blocks with the model, nor with each other",
  async (flavour) => {
    const sim = await startWithAdapters({ parameters: { flavour, blockSize: 16 } });
    const named = (model: string) => (flavour === "sglang" ? { model, lora_path: model } : { model });
    for (const asked of [{ model: "tiny" }, named("adapter-a"), named("adapter-b")]) {
      expect(await cachedFor(sim, asked)).toBe(0);
      expect(await cachedFor(sim, asked)).toBe(96);
    }
    expect(await cachedFor(sim, { ...named("adapter-a"), cache_salt: "s" })).toBe(0);
  },
);

test("every endpoint takes an adapter by its name and says it in the answer", async () => {
  const sim = await startWithAdapters({ parameters: { blockSize: 16 } });
  const messages = [{ role: "user", content: prompt }];
  for (const [path, body] of [
    [completions, { prompt, max_tokens: 1 }],
    ["/v1/chat/completions", { messages, max_tokens: 1 }],
    ["/v1/messages", { messages, max_tokens: 1 }],
    ["/v1/responses", { input: prompt, max_output_tokens: 1 }],
    ["/v1/embeddings", { input: prompt }],
  ] as const) {
    const answer = await sim.post(path, { ...body, model: "adapter-b" });
    expect([answer.status, answer.json.model], path).toEqual([200, "adapter-b"]);
  }
});

test("vLLM does not know other names, and lists adapters among those it knows", async () => {
  const sim = await startWithAdapters();
  const answer = await sim.post(completions, { prompt, model: "adapter-c" });
  expect(answer.status).toBe(404);
  expect(at(answer.json, "error", "message")).toContain("tiny, adapter-a, adapter-b");
});

test.each(["vllm-0.23", "vllm-0.32"] as const)(
  "%s: events name the adapter on every block, the salt on the first",
  async (dialect) => {
    const sim = await startWithAdapters({ kvEvents: { dialect }, parameters: { blockSize: 16, maxBatchedTokens: 64 } });
    const events = await followEvents(sim);
    await sim.post(completions, { prompt, max_tokens: 1, model: "adapter-a", cache_salt: "pepper" });
    await events.caughtUp();
    const stored = events.events();
    // 100 tokens in two steps: four blocks, then two.
    expect(stored.map(({ hashes, adapter, cacheSalt }) => [hashes.length, adapter, cacheSalt])).toEqual([
      [4, "adapter-a", "pepper"],
      [2, "adapter-a", undefined],
    ]);
  },
);

async function loraSamples(sim: TestSim): Promise<{ running: string; waiting: string; value: number; max: string }[]> {
  const page = (await sim.get("/metrics")).text;
  const pattern =
    /^vllm:lora_requests_info\{max_lora="(\d+)",running_lora_adapters="(.*)",waiting_lora_adapters="(.*)"\} ([\d.]+)$/gm;
  return [...page.matchAll(pattern)].map(([, max, running, waiting, value]) => ({
    max: max as string,
    running: running as string,
    waiting: waiting as string,
    value: Number(value),
  }));
}

const newest = async (sim: TestSim) =>
  (await loraSamples(sim)).reduce((latest, sample) => (sample.value > latest.value ? sample : latest), {
    max: "",
    running: "none",
    waiting: "none",
    value: 0,
  });

test("metrics tell which adapters run and wait, from the first request for one on", async () => {
  const sim = await startWithAdapters({ speed: 20, parameters: { maxRunning: 2 } });
  await sim.post(completions, { prompt, max_tokens: 1 });
  expect(await loraSamples(sim)).toEqual([]);
  const long = { prompt, max_tokens: 20_000, stream: true };
  const open = ["adapter-a", "adapter-a", "adapter-b"].map((model) =>
    openRequest(sim.url + completions, { ...long, model }),
  );
  const [first, second, third] = open as [(typeof open)[0], (typeof open)[0], (typeof open)[0]];
  await waitFor(
    async () => {
      const { running, waiting } = await newest(sim);
      return running.includes("adapter-a") && waiting !== "";
    },
    { what: "adapters that run and wait" },
  );
  for (const request of [first, second]) request.destroy();
  await waitFor(async () => (await newest(sim)).running === "adapter-b", { what: "the second adapter" });
  expect(await newest(sim)).toMatchObject({ max: "2", waiting: "" });
  third.destroy();
  await waitFor(async () => (await newest(sim)).running === "", { what: "nobody" });
  // Combinations that are over keep the time when they were seen last.
  expect((await loraSamples(sim)).length).toBeGreaterThan(2);
  await sim.post("/sim/reset", "");
  expect(await loraSamples(sim)).toEqual([]);
});

test("of combinations of adapters 32 are kept", async () => {
  const adapters = Array.from({ length: 40 }, (_, index) => `adapter-${index}`);
  const sim = await startSim({ adapters, speed: 20 });
  for (const model of adapters) {
    const request = openRequest(sim.url + completions, { prompt, max_tokens: 20_000, stream: true, model });
    await waitFor(async () => (await newest(sim)).running === model, { what: model });
    request.destroy();
    await waitFor(async () => (await newest(sim)).running === "", { what: "nobody" });
  }
  const samples = await loraSamples(sim);
  expect(samples).toHaveLength(32);
  expect(samples.some(({ running }) => running === "adapter-0")).toBe(false);
  expect(samples.some(({ running }) => running === "adapter-39")).toBe(true);
});

test.each([
  [{ adapters: [""] }, "lora"],
  [{ adapters: ["tiny"], models: ["tiny"] }, "lora"],
  [{ adapters: ["a", "a"] }, "lora"],
  [{ adapters: Array.from({ length: 65 }, (_, index) => `a${index}`) }, "64"],
])("refuses %j", async (options, word) => {
  await expect(startSim(options)).rejects.toThrow(RangeError);
  await expect(startSim(options)).rejects.toThrow(word);
});
