import type { EngineRecord } from "@espalier/engines";
import { describe, expect, test } from "vitest";
import { adapterCallsOf, adapterFields } from "../src/adapters/adapter-loader.ts";

const engineOf = (ownedBy: string | undefined, dialect?: string): EngineRecord =>
  ({
    models: ownedBy === undefined ? undefined : [{ id: "base", ownedBy, created: 1 }],
    targets: [{ signals: { dialect } }],
  }) as unknown as EngineRecord;

test.each([
  ["vllm", "vllm", "/v1/load_lora_adapter", {}],
  ["sglang", "sglang", "/load_lora_adapter", { lora_path: '"say \\"x\\""' }],
  ["espalier", "sglang", "/load_lora_adapter", { lora_path: '"say \\"x\\""' }],
  ["sglang", undefined, "/load_lora_adapter", { lora_path: '"say \\"x\\""' }],
  [undefined, undefined, "/v1/load_lora_adapter", {}],
  ["espalier", "trtllm", "/v1/load_lora_adapter", {}],
])("a list of %s with metrics of %s", (owner, dialect, path, fields) => {
  const calls = adapterCallsOf(engineOf(owner, dialect));
  expect(calls.loadPath).toBe(path);
  expect(calls.unloadPath).toBe(path.replace("load_", "unload_"));
  expect(adapterFields(engineOf(owner, dialect), 'say "x"', "chat")).toEqual(fields);
});

// SGLang answers a request for an adapter by its base model, with status 200, wherever it does not apply adapters.
test.each([
  ["chat", { lora_path: '"ada"' }],
  ["completions", { lora_path: '"ada"' }],
  ["embeddings", { lora_path: '"ada"' }],
  ["generate", { lora_path: '"ada"' }],
  ["messages", { model: '"base:ada"' }],
  ["count_tokens", {}],
  ["tokenize", {}],
  ["detokenize", {}],
  ["responses", undefined],
  ["rerank", undefined],
  ["score", undefined],
] as const)("an adapter of SGLang on %s", (endpoint, fields) => {
  expect(adapterFields(engineOf("sglang"), "ada", endpoint)).toEqual(fields);
  expect(adapterFields(engineOf("vllm"), "ada", endpoint)).toEqual({});
});

const calls = { vllm: adapterCallsOf(engineOf("vllm")), sglang: adapterCallsOf(engineOf("sglang")) };
/** Answers in the words of the engines. */
const words = {
  done: [200, "Success"],
  vllmThere: [400, '{"error":{"message":"The lora adapter \'a\' has already been loaded."}}'],
  vllmGone: [404, '{"error":{"message":"The lora adapter \'a\' cannot be found."}}'],
  vllmMissing: [404, '{"error":{"message":"The model `a` does not exist."}}'],
  noPath: [404, '{"detail":"Not Found"}'],
  sglangThere: [400, '{"success":false,"error_message":"Failed to load LoRA adapter a because it is already loaded"}'],
  sglangKnown: [400, '{"success":false,"error_message":"LoRA with name a already exists. Loaded LoRAs: []"}'],
  sglangFull: [400, '{"success":false,"error_message":"Maximum number of loaded LoRA adapters is 2."}'],
  sglangGone: [400, '{"success":false,"error_message":"LoRA with name a does not exist. Loaded LoRAs: []"}'],
  sglangMissing: [400, '{"message":"The following requested LoRA adapters are not loaded: a"}'],
  sglangStream: [200, 'data: {"error":{"message":"The following requested LoRA adapters are not loaded: a"}}\n\n'],
  quoted: [200, 'data: {"choices":[{"text":"LoRA adapters are not loaded"}]}\n\n'],
  broken: [500, "already loaded, does not exist, Maximum number of loaded LoRA adapters"],
} as const;

describe.each([
  ["vllm", "isThere", ["done", "vllmThere"]],
  ["vllm", "isGone", ["done", "vllmGone"]],
  ["vllm", "isMissing", ["vllmMissing"]],
  ["vllm", "isFull", []],
  ["sglang", "isThere", ["done", "sglangThere", "sglangKnown"]],
  ["sglang", "isGone", ["done", "sglangGone"]],
  ["sglang", "isMissing", ["sglangMissing", "sglangStream"]],
  ["sglang", "isFull", ["sglangFull"]],
] as const)("%s %s", (dialect, question, yes) => {
  const own = Object.keys(words).filter((name) =>
    question === "isThere" || question === "isGone" ? !["sglangStream", "quoted"].includes(name) : true,
  ) as (keyof typeof words)[];
  test.each(own)("of %s", (name) => {
    const [status, body] = words[name];
    expect(calls[dialect][question]({ status, body })).toBe((yes as readonly string[]).includes(name));
  });
});
