import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { randomRuns, sharedPath } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type EngineDialect, type RankReading, readMetricsPage, type SignalValues } from "../../src/workers/index.ts";
import { readWholePage } from "./whole-page.ts";

/** What a reading knows, without what it does not. */
function knownOf({ values }: RankReading): Partial<SignalValues> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => !Number.isNaN(value)));
}

test.each<[string, string, EngineDialect | undefined, Partial<SignalValues>]>([
  [
    "vLLM, names since 0.10",
    `
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.79522713260136e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.2e+03
vllm:generation_tokens_total{engine="0",model_name="m"} 77.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="8192"} 1.0
`,
    "vllm",
    {
      running: 3,
      waiting: 2,
      kvUse: 0.25,
      blockSize: 16,
      blockCount: 8191,
      promptTokensTotal: 1200,
      generationTokensTotal: 77,
      prefixQueries: 1000,
      prefixHits: 400,
    },
  ],
  [
    "vLLM, names before 0.10",
    `vllm:num_requests_running{model_name="m"} 1
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_prefix_cache_queries_total{model_name="m"} 10
vllm:gpu_prefix_cache_hits_total{model_name="m"} 5`,
    "vllm",
    { running: 1, kvUse: 0.5, prefixQueries: 10, prefixHits: 5 },
  ],
  [
    "vLLM with both generations of names, of which the new one counts",
    "vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.1\n",
    "vllm",
    { kvUse: 0.1 },
  ],
  [
    "vLLM before its cache is sized",
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\nvllm:kv_cache_usage_perc NaN\n',
    "vllm",
    { blockSize: 16 },
  ],
  [
    "SGLang since 0.5.11",
    `sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 1.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.3
sglang:page_size{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 16.0
sglang:num_pages{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 192.0
sglang:prompt_tokens_total{engine_type="unified",is_streaming="false",model_name="m"} 900.0
sglang:prompt_tokens_total{engine_type="unified",is_streaming="true",model_name="m"} 100.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="false",model_name="m"} 60.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="true",model_name="m"} 6.0
sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="m"} 300.0
sglang:cached_tokens_total{cache_source="host",engine_type="unified",model_name="m"} 50.0`,
    "sglang",
    {
      running: 4,
      waiting: 1,
      kvUse: 0.3,
      blockSize: 16,
      blockCount: 192,
      promptTokensTotal: 1000,
      generationTokensTotal: 66,
      prefixQueries: 1000,
      prefixHits: 350,
    },
  ],
  [
    "SGLang before 0.5.11",
    'sglang:num_running_reqs 2\nsglang:cache_config_info{page_size="64",num_pages="100"} 1\n',
    "sglang",
    { running: 2, blockSize: 64, blockCount: 100 },
  ],
  [
    "trtllm-serve",
    `trtllm_num_requests_running{model_name="m"} 6
trtllm_num_requests_waiting{model_name="m"} 7
trtllm_kv_cache_utilization{model_name="m"} 0.75
trtllm_kv_cache_tokens_per_block{model_name="m"} 32
trtllm_kv_cache_max_blocks{model_name="m"} 500`,
    "trtllm",
    { running: 6, waiting: 7, kvUse: 0.75, blockSize: 32, blockCount: 500 },
  ],
  [
    "Triton with TensorRT-LLM",
    `nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 3
nv_trt_llm_request_metrics{model="m",request_type="context",version="1"} 90
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 5
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m"} 0.4
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m"} 40
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m"} 100
nv_inference_pending_request_count{model="m",version="1"} 11`,
    "triton",
    { running: 5, waiting: 3, kvUse: 0.4, blockSize: 64, blockCount: 100 },
  ],
  ["Triton with another backend", 'nv_inference_pending_request_count{model="m"} 11\n', "triton", { waiting: 11 }],
  ["another program", "process_cpu_seconds_total 12\nvllmish 3\nsglang_other 4\n", undefined, {}],
  ["nothing", "", undefined, {}],
  ["trtllm-serve's JSON page", '[{"iter":1,"gpuMemUsage":12}]', undefined, {}],
])("reads a page of %s", (_, page, dialect, known) => {
  const reading = readWholePage(page);
  expect(reading).toMatchObject({ dialect, malformedLines: 0 });
  expect(knownOf(reading)).toEqual(known);
});

test("counts are summed over data-parallel ranks, the use of their caches is averaged", () => {
  const page = ["0", "1", "2"].map(
    (rank) => `vllm:num_requests_running{engine="${rank}"} ${Number(rank) + 1}
vllm:num_requests_waiting{engine="${rank}"} 10
vllm:kv_cache_usage_perc{engine="${rank}"} 0.${rank}
vllm:prompt_tokens_total{engine="${rank}"} 100
vllm:cache_config_info{block_size="32",engine="${rank}",num_gpu_blocks="288"} 1
`,
  );
  const { values } = readWholePage(page.join(""));
  expect(values).toMatchObject({ running: 6, waiting: 30, blockSize: 32, blockCount: 285, promptTokensTotal: 300 });
  expect(values.kvUse).toBeCloseTo(0.1, 12);
});

// With two data-parallel ranks of 64 blocks each, vLLM 0.32 writes num_gpu_blocks="128" on the series of either rank.
// Adding those up made the cache look twice as large as it is.
test("the block count that vLLM repeats for every rank is that of the whole engine", () => {
  const page = `vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="128",num_gpu_blocks_override="64"} 1
vllm:cache_config_info{block_size="32",engine="1",num_gpu_blocks="128",num_gpu_blocks_override="64"} 1
`;
  expect(knownOf(readWholePage(page))).toEqual({ blockSize: 32, blockCount: 126 });
});

test("the ranks inside one scheduler are copies, those of a data-parallel group are not", () => {
  const lines: string[] = [];
  for (const dp of [0, 1]) {
    for (const tp of [0, 1, 2, 3]) {
      const labels = `{dp_rank="${dp}",model_name="m",moe_ep_rank="${tp}",pp_rank="0",tp_rank="${4 * dp + tp}"}`;
      lines.push(`sglang:num_running_reqs${labels} ${dp + 2}`, `sglang:num_pages${labels} 192`);
      lines.push(`sglang:token_usage${labels} ${tp === 1 ? 0.5 : 0.25}`);
    }
  }
  expect(knownOf(readWholePage(lines.join("\n")))).toEqual({ running: 5, blockCount: 384, kvUse: 0.5 });
});

test.each<[string, string]>([
  ["no value", 'vllm:num_requests_running{engine="0"}'],
  ["no value and no labels", "vllm:num_requests_running"],
  ["a word for a value", "vllm:num_requests_running many"],
  ["a negative value", "vllm:num_requests_running -1"],
  ["an infinite value", "vllm:num_requests_running +Inf"],
  ["another infinite value", "vllm:num_requests_running Infinity"],
  ["a value beyond exact integers", "vllm:num_requests_running 1e300"],
  ["labels that do not end", 'vllm:num_requests_running{engine="0" 3'],
  ["a label value that does not end", 'vllm:num_requests_running{engine="0 3'],
  ["a label without quotes", "vllm:num_requests_running{engine=0} 3"],
  ["a label without a name", 'vllm:num_requests_running{="0"} 3'],
  ["a line beyond the length limit", `vllm:num_requests_running{a="${"x".repeat(65_536)}"} 3`],
])("a line with %s is skipped and counted, the others are read", (_, line) => {
  const reading = readWholePage(`vllm:num_requests_waiting 1\n${line}\nvllm:kv_cache_usage_perc 0.5\n`);
  expect(reading).toMatchObject({ dialect: "vllm", malformedLines: 1 });
  expect(knownOf(reading)).toEqual({ waiting: 1, kvUse: 0.5 });
});

test.each<[string, string, number]>([
  ["a timestamp", "vllm:num_requests_running 3 1700000000000", 3],
  ["Windows line ends", "vllm:num_requests_running 3\r\n", 3],
  ["tabs and many spaces", "vllm:num_requests_running\t   3  ", 3],
  ["spaces inside the braces", 'vllm:num_requests_running{ engine = "0" , model_name = "m" } 3', 3],
  ["a comma after the last label", 'vllm:num_requests_running{engine="0",} 3', 3],
  ["empty braces", "vllm:num_requests_running{} 3", 3],
  ["braces, commas and escaped quotes in a label value", 'vllm:num_requests_running{a="}, \\"x\\\\",b="{1}"} 3', 3],
  ["a line close to the length limit", `vllm:num_requests_running{a="${"x".repeat(60_000)}"} 3`, 3],
  ["an exponent", "vllm:num_requests_running 3e+02", 300],
])("a line with %s is read", (_, line, running) => {
  expect(readWholePage(line)).toMatchObject({ malformedLines: 0, values: { running } });
});

test("a cache use beyond all of it is all of it", () => {
  expect(readWholePage("vllm:kv_cache_usage_perc 1.7").values.kvUse).toBe(1);
});

test("known samples beyond the limit are skipped and counted", () => {
  const lines = Array.from({ length: 4_097 }, (_, number) => `vllm:num_requests_running{engine="${number}"} 1`);
  expect(readWholePage(lines.slice(0, 4_096).join("\n"))).toMatchObject({
    malformedLines: 0,
    values: { running: 4_096 },
  });
  expect(readWholePage(lines.join("\n"))).toMatchObject({ malformedLines: 1, values: { running: 4_096 } });
});

test("any text gives a reading whose numbers are unknown or in their range", () => {
  const names = [
    "vllm:num_requests_running",
    "vllm:kv_cache_usage_perc",
    "sglang:token_usage",
    "vllm:cache_config_info",
  ];
  const piece = fc.oneof(
    fc.constantFrom(...names, "{", "}", '"', "=", ",", " ", "\n", "\\", "-1", "0.5", "NaN"),
    fc.string(),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
      const reading = readWholePage(pieces.join(""));
      expect(reading.malformedLines).toBeGreaterThanOrEqual(0);
      for (const value of Object.values(reading.values)) {
        expect(Number.isNaN(value) || (value >= 0 && Number.isFinite(value))).toBe(true);
      }
      expect(reading.values.kvUse > 1).toBe(false);
    }),
    { numRuns: randomRuns(500), seed: 3 },
  );
});

/** The pages of one captured engine, by what stands after `#####`, for instance `session=0 end-full`. */
function capturedPages(folder: string): ReadonlyMap<string, string> {
  const text = gunzipSync(readFileSync(folder)).toString("utf8");
  const parts = text.split(/^##### (.*) t=.*\n/mu).slice(1);
  const pages = new Map<string, string>();
  for (let i = 0; i < parts.length; i += 2) pages.set(parts[i]!, parts[i + 1]!);
  return pages;
}

const idle = { running: 0, waiting: 0 };

test.each<[string, string, Partial<SignalValues>]>([
  ["vllm-0.23.0", "session=0 ready-full", { ...idle, kvUse: 0, blockSize: 32, blockCount: 95, promptTokensTotal: 0 }],
  ["vllm-0.23.0", "session=0 end-full", { ...idle, prefixQueries: 39_281, prefixHits: 11_744 }],
  [
    "vllm-0.32.0",
    "session=0 end-full",
    { promptTokensTotal: 29_719, generationTokensTotal: 4_439, prefixHits: 12_096 },
  ],
  [
    "vllm-0.32.0",
    "session=4 end",
    { ...idle, blockSize: 32, blockCount: 126, promptTokensTotal: 2_590, generationTokensTotal: 18, prefixHits: 576 },
  ],
  [
    "sglang-0.5.23",
    "session=0 end-full",
    {
      ...idle,
      kvUse: 0.26,
      blockSize: 16,
      blockCount: 192,
      promptTokensTotal: 29_611,
      generationTokensTotal: 4_442,
      prefixQueries: 29_611,
      prefixHits: 12_080,
    },
  ],
  ["sglang-0.5.23", "session=2 end", { ...idle, blockSize: 1, blockCount: 1_200, prefixHits: 585 }],
])("reads the page that %s sent at %s", (engine, moment, expected) => {
  const path = sharedPath("fixtures", engine, "metrics.txt.gz");
  if (!path) return;
  const reading = readWholePage(capturedPages(path).get(moment)!);
  expect(reading).toMatchObject({ dialect: engine.split("-")[0], malformedLines: 0, values: expected });
});

test("no captured page has a malformed line, and all have the load", () => {
  for (const engine of ["vllm-0.23.0", "vllm-0.32.0", "sglang-0.5.23"]) {
    const path = sharedPath("fixtures", engine, "metrics.txt.gz");
    if (!path) return;
    for (const [moment, page] of capturedPages(path)) {
      const { malformedLines, values } = readWholePage(page);
      expect(malformedLines, `${engine} ${moment}`).toBe(0);
      expect(values, `${engine} ${moment}`).toMatchObject(idle);
    }
  }
});

test("the numbers of one rank are those of its own series, and a share of what is told for the whole engine", () => {
  const page = `
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="128"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="128"} 1.0
`;
  const ofRank = (rank: number) => readMetricsPage(page, [0, 1]).ranks[rank]?.values;
  expect(ofRank(0)).toMatchObject({ running: 3, kvUse: 0.25, blockSize: 16, blockCount: 63 });
  expect(ofRank(1)).toMatchObject({ running: 5, kvUse: 0.75, blockSize: 16, blockCount: 63 });
  expect(readWholePage(page).values).toMatchObject({ running: 8, kvUse: 0.5, blockCount: 126 });
  const sglang = 'sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 4\nsglang:num_running_reqs{dp_rank="0"} 2\n';
  expect(readMetricsPage(sglang, [0, 1]).ranks[1]?.values.running).toBe(4);
  expect(readMetricsPage("sglang:num_running_reqs 4\n", [0, 1]).ranks[1]?.values.running).toBe(4);
});

// SGLang with --enable-priority-scheduling writes the total of two gauges as priority="" and a series for each priority
// beside it (metrics_collector.py, _log_gauge_queue_count). All were added up, so an engine looked twice as busy as it was.
test("an engine that counts by priority has the total that it says, and the sum of counters that have none", () => {
  const labels = (priority: string): string =>
    `engine_type="unified",model_name="m",priority="${priority}",tp_rank="0"`;
  const page = `sglang:num_running_reqs{${labels("")}} 4.0
sglang:num_running_reqs{${labels("0")}} 3.0
sglang:num_running_reqs{${labels("10")}} 1.0
sglang:num_queue_reqs{${labels("")}} 2.0
sglang:num_queue_reqs{${labels("None")}} 2.0
sglang:token_usage{${labels("")}} 0.5
sglang:prompt_tokens_total{${labels("")}} 100
sglang:prompt_tokens_total{${labels("10")}} 30
`;
  expect(knownOf(readWholePage(page))).toEqual({
    running: 4,
    waiting: 2,
    kvUse: 0.5,
    promptTokensTotal: 130,
    prefixQueries: 130,
  });
});

/** A page like vLLM's with data parallelism: most lines are histograms that nobody reads. */
function pageOfRanks(ranks: number): string {
  const lines: string[] = [];
  const gauges = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total"];
  const histograms = ["time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"];
  for (let rank = 0; rank < ranks; rank++) {
    const labels = `engine="${rank}",model_name="deepseek-ai/DeepSeek-V3.1"`;
    for (const name of gauges) lines.push(`vllm:${name}{${labels}} ${rank}`);
    for (const name of histograms) {
      for (let bucket = 0; bucket < 60; bucket++) lines.push(`vllm:${name}_bucket{${labels},le="${bucket / 4}"} 3.0`);
    }
  }
  return lines.join("\n");
}

// The page was read once for each rank and once more: 64 ranks took 326 ms of the event loop, each second, per engine.
test("a page is read once, however many ranks it has", () => {
  const cpuMs = (read: () => unknown): number => {
    read();
    const before = process.cpuUsage();
    for (let i = 0; i < 5; i++) read();
    return process.cpuUsage(before).user / 5_000;
  };
  for (const count of [8, 16, 64]) {
    const page = pageOfRanks(count);
    const ranks = Array.from({ length: count }, (_, rank) => rank);
    expect(readMetricsPage(page, ranks).ranks.map(({ values }) => values.running)).toEqual(ranks);
    const whole = cpuMs(() => readMetricsPage(page));
    expect(cpuMs(() => readMetricsPage(page, ranks))).toBeLessThan(4 * whole + 4);
  }
});
