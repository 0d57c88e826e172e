import { expect, test } from "vitest";
import { endpoints } from "../src/index.ts";

test.each([
  // path, id, family, kind, streams, usage injectable
  ["/v1/chat/completions", "chat", "openai", "generate", true, true],
  ["/v1/completions", "completions", "openai", "generate", true, true],
  ["/v1/embeddings", "embeddings", "openai", "embed", false, false],
  ["/v1/responses", "responses", "openai", "generate", true, false],
  ["/v1/rerank", "rerank", "openai", "rank", false, false],
  ["/rerank", "rerank", "openai", "rank", false, false],
  ["/v2/rerank", "rerank", "openai", "rank", false, false],
  ["/v1/score", "score", "openai", "rank", false, false],
  ["/score", "score", "openai", "rank", false, false],
  ["/v1/messages", "messages", "anthropic", "generate", true, false],
  ["/v1/messages/count_tokens", "count_tokens", "anthropic", "tokenize", false, false],
  ["/generate", "generate", "sglang", "generate", true, false],
  ["/inference/v1/generate", "token_generate", "openai", "generate", true, false],
  ["/skyrl/v1/generate", "token_generate", "openai", "generate", true, false],
  ["/tokenize", "tokenize", "openai", "tokenize", false, false],
  ["/detokenize", "detokenize", "openai", "tokenize", false, false],
  ["/v1/images/generations", "images", "openai", "media", true, false],
  ["/v1/audio/speech", "speech", "openai", "media", false, false],
] as const)("%s is %s of the %s family", (path, id, family, kind, streams, usageInjectable) => {
  const found = endpoints.filter((endpoint) => endpoint.path === path);
  expect(found).toHaveLength(1);
  expect(found[0]).toMatchObject({ id, method: "POST", family, kind, streams, usageInjectable });
});

test("there is no other endpoint than those of the table above", () => {
  expect(endpoints).toHaveLength(18);
});

test("aliases differ in their path only", () => {
  const byId = new Map<string, unknown>();
  for (const { path: _path, ...rest } of endpoints) {
    if (byId.has(rest.id)) expect(rest).toEqual(byId.get(rest.id));
    byId.set(rest.id, rest);
  }
  expect(byId.size).toBe(14);
});
