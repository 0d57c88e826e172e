import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { type FuzzTarget, fuzzInFile, sharedPath } from "@espalier/testing";
import { expect, test } from "vitest";
import { readMetricsPage } from "../../src/workers/metrics-page.ts";
import { maxModelsPerEngine, parseModelList } from "../../src/workers/served-models.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");

/** Pages that vLLM and SGLang wrote, where they are at hand, cut to the lines that are read. */
function capturedPages(): readonly Uint8Array[] {
  const folder = sharedPath("fixtures");
  if (!folder) return [];
  return readdirSync(folder)
    .filter((name) => /^(vllm|sglang)-/.test(name))
    .map((name) => gunzipSync(readFileSync(join(folder, name, "metrics.txt.gz"))).subarray(0, 30_000));
}

const page = `# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a\\"b"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1e3 1700000000
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",engine="0"} 1.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters=""} 1.7e9
sglang:num_running_reqs{tp_rank="0",dp_rank="1"} 2
sglang:token_usage NaN
`;

const targets: readonly FuzzTarget[] = [
  {
    name: "Prometheus text",
    seeds: [utf8(page), ...capturedPages()],
    read(bytes, random) {
      const { ranks, malformedLines } = readMetricsPage(textOf(bytes), random.integer(2) === 0 ? [0, 1] : []);
      for (const { values } of ranks) for (const value of Object.values(values)) expect(typeof value).toBe("number");
      expect(malformedLines).toBeLessThanOrEqual(bytes.length + 1);
    },
  },
  {
    name: "list of models",
    seeds: [
      utf8(
        JSON.stringify({ data: [{ id: "a", created: 5, max_model_len: 100 }, { id: "b", parent: "a" }, { id: "c" }] }),
      ),
    ],
    read(bytes) {
      const { models = [] } = parseModelList(textOf(bytes), 1_700_000_000) ?? {};
      expect(models.length).toBeLessThanOrEqual(maxModelsPerEngine);
      for (const { id } of models) expect(id.length).toBeLessThanOrEqual(256);
    },
  },
];

fuzzInFile(test, "whatever comes is read, or left out", targets);
