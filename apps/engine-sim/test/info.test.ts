import { expect, test } from "vitest";
import { openRequest, startSim, untilIdle } from "./sim-client.ts";

test("the models are listed with the longest prompt they take", async () => {
  const sim = await startSim({ models: ["one", "two"], parameters: { maxModelLength: 999 } });
  const { object, data } = (await sim.get("/v1/models")).json as { object: string; data: unknown[] };
  expect(object).toBe("list");
  expect(data).toEqual(
    ["one", "two"].map((id) => ({
      id,
      object: "model",
      created: expect.any(Number),
      owned_by: "vllm",
      root: "one",
      parent: null,
      max_model_len: 999,
    })),
  );
});

test("health and ping are 200 without a body", async () => {
  const sim = await startSim();
  for (const path of ["/health", "/ping"]) {
    const answer = await sim.get(path);
    expect([answer.status, answer.text]).toEqual([200, ""]);
  }
});

test("the version says which interface it is, and that it is simulated", async () => {
  const vllm = await startSim();
  expect((await vllm.get("/version")).json).toEqual({ version: "0.32.0+simulated" });
  const sglang = await startSim({ parameters: { flavour: "sglang" } });
  expect((await sglang.get("/version")).json).toEqual({ version: "0.5.23+simulated" });
});

test("server_info tells what a router needs of each flavour", async () => {
  const parameters = { blockSize: 32, blockCount: 100, maxRunning: 7, maxModelLength: 500, maxBatchedTokens: 64 };
  const vllm = await startSim({ parameters });
  expect((await vllm.get("/server_info")).json).toEqual({
    vllm_config: {
      served_model_name: ["tiny"],
      max_model_len: 500,
      max_num_seqs: 7,
      max_num_batched_tokens: 64,
      block_size: 32,
      enable_prefix_caching: true,
    },
  });
  const sglang = await startSim({ parameters: { ...parameters, flavour: "sglang" } });
  expect((await sglang.get("/server_info")).json).toMatchObject({
    page_size: 32,
    max_total_num_tokens: 3_200,
    served_model_name: "tiny",
    enable_cache_report: true,
  });
});

test.each([
  ["vllm", "/reset_prefix_cache", 500],
  ["sglang", "/flush_cache", 400],
] as const)("%s forgets its cache on %s, unless requests run", async (flavour, path, refusal) => {
  const sim = await startSim({ speed: 10, parameters: { flavour } });
  const prompt = "x".repeat(400);
  const cached = async () => {
    const { usage } = (await sim.post("/v1/completions", { prompt, max_tokens: 1 })).json as {
      usage: { prompt_tokens_details: { cached_tokens: number } };
    };
    return usage.prompt_tokens_details.cached_tokens;
  };
  await cached();
  expect(await cached()).toBe(96);
  const reset = await sim.post(path, "");
  expect(reset.status).toBe(200);
  if (flavour === "vllm") expect(reset.json).toEqual({ success: true });
  expect(await cached()).toBe(0);

  const running = openRequest(`${sim.url}/v1/completions`, { prompt, max_tokens: 4_000, stream: true });
  await running.head;
  const refused = await sim.post(path, "");
  expect(refused.status).toBe(refusal);
  if (flavour === "vllm") expect(refused.json).toEqual({ success: false });
  running.destroy();
  await untilIdle(sim);
  expect(await cached()).toBe(96);
});
