import { endpoints, readRequestView } from "@espalier/api";
import { expect, test } from "vitest";
import { findTransferField, namesEngines, renderReservedDocs } from "../../src/disaggregation/index.ts";

const chat = endpoints.find(({ id }) => id === "chat")!;
const find = (fields: string) => {
  const body = Buffer.from(`{"model":"m","messages":[{"role":"user","content":"x"}]${fields && `,${fields}`}}`);
  return findTransferField(readRequestView(chat, body, { maxDepth: 64 }).body);
};

test.each([
  ['"kv_transfer_params":{"remote_host":"10.0.0.1"}', "kv_transfer_params"],
  ['"kv_transf\\u0065r_params":{}', "kv_transfer_params"],
  ['"ec_transfer_params":[]', "ec_transfer_params"],
  ['"bootstrap_host":"10.0.0.1"', "bootstrap_host"],
  ['"bootstrap_port":1', "bootstrap_port"],
  ['"bootstrap_room":0', "bootstrap_room"],
  ['"data_parallel_rank":false', "data_parallel_rank"],
  ['"disaggregated_params":{"request_type":"generation_only"}', "disaggregated_params"],
  ['"vllm_xargs":{"a":[1,2],"kv_transfer_params":"x"}', "vllm_xargs.kv_transfer_params"],
  [
    '"vllm_xargs":{"a":1},"sampling_params":{"extra_args":{"ec_transfer_params":{}}}',
    "sampling_params.extra_args.ec_transfer_params",
  ],
  ['"kv_hints":{"version":1}', "kv_hints"],
  ['"kv_hints":[null,{"version":1}]', "kv_hints"],
  ['"encoder_urls":["http://10.0.0.1"]', "encoder_urls"],
  ['"http_worker_ipc":"ipc:///tmp/x"', "http_worker_ipc"],
  ['"mm_hashes":["ab"]', "mm_hashes"],
])("%s is a router's", (fields, name) => {
  expect(find(fields)).toBe(name);
});

test.each([
  "",
  '"kv_transfer_params":null,"bootstrap_host":null',
  '"metadata":{"kv_transfer_params":"x"}',
  '"vllm_xargs":{"a":{"kv_transfer_params":1}}',
  '"vllm_xargs":"kv_transfer_params"',
  '"cache_salt":"s","session_id":"s","session_params":{"id":"kv_hints"},"rid":"r","priority":3,"extra_key":"k"',
])("%s is a client's", (fields) => {
  expect(find(fields)).toBeUndefined();
});

test("an id with addresses in it names engines", () => {
  expect(namesEngines("cmpl-___prefill_addr_10.0.0.1:80___decode_addr_10.0.0.2:80_1")).toBe(true);
  expect(namesEngines("req-1_prefill_addr_")).toBe(false);
});

test("the page names the engine's file and line for each name of a release", () => {
  const rows = renderReservedDocs()
    .split("\n")
    .filter((line) => /^\| `/.test(line));
  expect(rows.length).toBeGreaterThan(30);
  for (const row of rows) {
    if (/vLLM|SGLang/.test(row))
      expect(row).toMatch(/^\| `[\w.-]+` \| (?:vLLM 0\.32\.0|SGLang 0\.5\.23) \| `[\w/.]+\.py:\d+` \| .+ \|$/);
  }
});
