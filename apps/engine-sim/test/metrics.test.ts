import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { capturedMetrics, captureFolder, openRequest, startSim, untilIdle } from "./sim-client.ts";

interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A strict reading of the Prometheus text format: anything else throws. */
function parsePage(lines: readonly string[]): { types: Map<string, string>; samples: Sample[] } {
  const types = new Map<string, string>();
  const samples: Sample[] = [];
  for (const line of lines) {
    const type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line);
    if (type) types.set(type[1] as string, type[2] as string);
    if (line === "" || line.startsWith("#")) continue;
    const sample = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (-?[\d.eE+-]+|NaN|[+-]Inf)$/.exec(line);
    if (!sample) throw new Error(`not a sample: ${line}`);
    const labels = [...(sample[2] ?? "").matchAll(/([a-z_]\w*)="((?:[^"\\]|\\.)*)"(?:,|$)/g)];
    samples.push({
      name: sample[1] as string,
      labels: Object.fromEntries(labels.map(([, name, value]) => [name, value])),
      value: Number(sample[3]),
    });
  }
  return { types, samples };
}

/** A metric's name without what a histogram adds to it. */
const familyOf = (name: string): string => name.replace(/_(bucket|count|sum)$/, "");

const bucketBounds = (samples: readonly Sample[], family: string): string[] => [
  ...new Set(samples.filter(({ name }) => name === `${family}_bucket`).map(({ labels }) => labels.le as string)),
];

const required = {
  vllm: [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:num_preemptions_total",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_success_total",
    "vllm:cache_config_info",
  ],
  sglang: [
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:token_usage",
    "sglang:num_used_tokens",
    "sglang:cache_hit_rate",
    "sglang:gen_throughput",
    "sglang:max_total_num_tokens",
    "sglang:page_size",
    "sglang:num_pages",
    "sglang:prompt_tokens_total",
    "sglang:generation_tokens_total",
    "sglang:cached_tokens_total",
    "sglang:time_to_first_token_seconds",
    "sglang:inter_token_latency_seconds",
    "sglang:e2e_request_latency_seconds",
    "sglang:queue_time_seconds",
  ],
} as const;

for (const [flavour, capture] of [
  ["vllm", "vllm-0.32.0"],
  ["sglang", "sglang-0.5.23"],
] as const) {
  const folder = captureFolder(capture);

  test.skipIf(folder === undefined)(`every metric is one of ${capture}, of the same type and bounds`, async () => {
    const real = parsePage((await capturedMetrics(folder as string)).filter((line) => !line.startsWith("#####")));
    const sim = await startSim({ parameters: { flavour } });
    await sim.post("/v1/completions", { prompt: "a", max_tokens: 1 });
    const ours = parsePage((await sim.get("/metrics")).text.split("\n"));
    expect([...ours.types.keys()]).toEqual(expect.arrayContaining([...required[flavour]]));
    for (const [name, type] of ours.types) {
      expect(real.types.get(name), name).toBe(type);
      if (type !== "histogram") continue;
      const own = bucketBounds(ours.samples, name);
      expect(own, name).toEqual(bucketBounds(real.samples, name));
    }
    for (const { name, labels } of ours.samples) {
      const theirs = real.samples.find((sample) => sample.name === name);
      expect(Object.keys(theirs?.labels ?? {}), name).toEqual(expect.arrayContaining(Object.keys(labels)));
    }
  });
}

test.each(["vllm", "sglang"] as const)(
  "the page of %s declares what it shows and its histograms add up",
  async (flavour) => {
    const sim = await startSim({ parameters: { flavour } });
    await sim.post("/v1/completions", { prompt: ["a", "b", "c"], max_tokens: 5 });
    const answer = await sim.get("/metrics");
    expect(answer.headers.get("content-type")).toContain("text/plain");
    expect(answer.text.endsWith("\n")).toBe(true);
    const { types, samples } = parsePage(answer.text.split("\n"));
    for (const { name, labels } of samples) {
      expect(types.has(name) || types.get(familyOf(name)) === "histogram", name).toBe(true);
      if (name.startsWith(`${flavour}:`) && name !== "vllm:cache_config_info") expect(labels.model_name).toBe("tiny");
    }
    const numberOf = (name: string) => samples.find((sample) => sample.name === name)?.value;
    for (const [family, type] of types) {
      if (type !== "histogram") continue;
      const buckets = samples.filter(({ name }) => name === `${family}_bucket`).map(({ value }) => value);
      expect(buckets).toEqual([...buckets].sort((a, b) => a - b));
      expect(buckets.at(-1)).toBe(numberOf(`${family}_count`));
    }
    expect(numberOf(`${flavour}:time_to_first_token_seconds_count`)).toBe(3);
    expect(numberOf(`${flavour}:e2e_request_latency_seconds_count`)).toBe(3);
    expect(numberOf(`${flavour}:inter_token_latency_seconds_count`)).toBe(3 * 4);
    expect(numberOf(`${flavour}:generation_tokens_total`)).toBe(15);
    expect(numberOf(`${flavour}:prompt_tokens_total`)).toBe(3);
  },
);

test("counters and gauges follow what the engine does", async () => {
  const sim = await startSim({ speed: 1, parameters: { maxRunning: 2, blockCount: 100, blockSize: 16 } });
  const values = async () => {
    const { samples } = parsePage((await sim.get("/metrics")).text.split("\n"));
    return (name: string, labels: Record<string, string> = {}) =>
      samples.find(
        (sample) =>
          sample.name === `vllm:${name}` &&
          Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
      )?.value;
  };
  const prompt = "x".repeat(4 * 160);
  const open = Array.from({ length: 5 }, () =>
    openRequest(`${sim.url}/v1/completions`, { prompt, max_tokens: 400, stream: true }),
  );
  await Promise.all(open.map(({ head }) => head));
  await waitFor(async () => (await sim.state()).stats.running === 2, { what: "two running requests" });
  const busy = await values();
  expect(busy("num_requests_running")).toBe(2);
  expect(busy("num_requests_waiting")).toBe(3);
  expect(busy("kv_cache_usage_perc")).toBeGreaterThan(0.1);
  expect(busy("cache_config_info", { block_size: "16", num_gpu_blocks: "101" })).toBe(1);
  for (const request of open) request.destroy();
  await untilIdle(sim);
  const idle = await values();
  expect(idle("num_requests_running")).toBe(0);
  expect(idle("num_requests_waiting")).toBe(0);
  expect(idle("kv_cache_usage_perc")).toBe(0);
  expect(idle("request_success_total", { finished_reason: "abort" })).toBe(5);

  const before = idle("prefix_cache_hits_total") as number;
  const queries = idle("prefix_cache_queries_total") as number;
  await sim.post("/v1/completions", { prompt, max_tokens: 1 });
  const after = await values();
  expect((after("prefix_cache_queries_total") as number) - queries).toBe(160);
  expect((after("prefix_cache_hits_total") as number) - before).toBe(144);
  expect(after("request_success_total", { finished_reason: "length" })).toBe(1);
});

test("the reason of an answer that ended by itself is counted as stop", async () => {
  const sim = await startSim({ naturalLengthMean: 2 });
  await sim.post("/v1/completions", { prompt: "a", max_tokens: 4_000 });
  expect((await sim.get("/metrics")).text).toMatch(/vllm:request_success_total\{.*finished_reason="stop".*\} 1\.0/);
});

test("a restart shows on vLLM's page as a later start of the process", async () => {
  const sim = await startSim({ parameters: { flavour: "vllm" } });
  const started = async () => {
    const { samples } = parsePage((await sim.get("/metrics")).text.split("\n"));
    return samples.find(({ name }) => name === "process_start_time_seconds")?.value as number;
  };
  const first = await started();
  await sim.post("/sim/reset", {});
  expect(await started()).toBeGreaterThan(first);
});

test("a restart shows on SGLang's page by its front end's counters, which are gone until the next request", async () => {
  const sim = await startSim({ parameters: { flavour: "sglang" } });
  const page = async () => (await sim.get("/metrics")).text;
  await sim.post("/v1/completions", { prompt: "a", max_tokens: 1 });
  expect(await page()).toMatch(/sglang:prompt_tokens_total\{.*\} 1\.0/);
  await sim.post("/sim/reset", {});
  expect(await page()).not.toContain("sglang:prompt_tokens_total");
  expect(await page()).not.toContain("process_start_time_seconds");
});

test("a model's name is escaped in labels", async () => {
  const sim = await startSim({ models: ['a"b\\c\nd'] });
  const { samples } = parsePage((await sim.get("/metrics")).text.split("\n"));
  expect(samples[0]?.labels.model_name).toBe('a\\"b\\\\c\\nd');
});
