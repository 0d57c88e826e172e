import { expect, test } from "vitest";
import { at, type Json, startSim } from "./sim-client.ts";

const vectorOf = (body: Json, index = 0): number[] => at(body, "data", index, "embedding") as number[];
const lengthOf = (vector: readonly number[]): number => Math.hypot(...vector);

test("an embedding is a unit vector that depends on the input only", async () => {
  const sim = await startSim();
  const embed = async (input: unknown, more: Json = {}) => (await sim.post("/v1/embeddings", { input, ...more })).json;
  const cat = await embed("the cat");
  expect(cat).toMatchObject({ object: "list", model: "tiny", data: [{ index: 0, object: "embedding" }] });
  expect(vectorOf(cat)).toHaveLength(384);
  expect(lengthOf(vectorOf(cat))).toBeCloseTo(1, 5);
  expect(vectorOf(await embed("the cat"))).toEqual(vectorOf(cat));
  const both = await embed(["the dog", "the cat"]);
  expect(vectorOf(both, 1)).toEqual(vectorOf(cat));
  const similarity = vectorOf(both, 0).reduce((sum, value, at) => sum + value * (vectorOf(cat)[at] as number), 0);
  expect(Math.abs(similarity)).toBeLessThan(0.3);
});

test("token ids, dimensions and base64 are understood", async () => {
  const sim = await startSim();
  const { tokens } = (await sim.post("/tokenize", { prompt: "the cat" })).json;
  const embed = async (body: Json) => (await sim.post("/v1/embeddings", body)).json;
  const plain = vectorOf(await embed({ input: "the cat", dimensions: 8 }));
  expect(plain).toHaveLength(8);
  expect(vectorOf(await embed({ input: tokens, dimensions: 8 }))).toEqual(plain);
  const packed = await embed({ input: "the cat", dimensions: 8, encoding_format: "base64" });
  const bytes = Buffer.from(at(packed, "data", 0, "embedding") as string, "base64");
  expect(Array.from({ length: 8 }, (_, at) => bytes.readFloatLE(at * 4))).toEqual(plain);
});

test("only the prompt is computed: nothing counts as generated", async () => {
  const sim = await startSim();
  const answer = (await sim.post("/v1/embeddings", { input: ["a".repeat(160), "b".repeat(160)] })).json;
  expect(answer.usage).toEqual({
    prompt_tokens: 80,
    total_tokens: 80,
    completion_tokens: 0,
    prompt_tokens_details: { cached_tokens: 0 },
  });
  const metrics = (await sim.get("/metrics")).text;
  expect(metrics).toMatch(/^vllm:prompt_tokens_total\{.*\} 80\.0$/m);
  expect(metrics).toMatch(/^vllm:generation_tokens_total\{.*\} 0\.0$/m);
  const again = (await sim.post("/v1/embeddings", { input: "a".repeat(160) })).json;
  expect(at(again, "usage", "prompt_tokens_details", "cached_tokens")).toBe(32);
});

test("reranking sorts the documents by their score and keeps their places", async () => {
  const sim = await startSim();
  const documents = ["one fish", "two fish", "red fish", "blue fish"];
  const rerank = async (more: Json = {}) => (await sim.post("/v1/rerank", { query: "fish", documents, ...more })).json;
  const { results, id } = (await rerank()) as { results: Json[]; id: string };
  expect(id).toMatch(/^rerank-/);
  expect(results.map(({ index }) => index).sort()).toEqual([0, 1, 2, 3]);
  const scores = results.map(({ relevance_score: score }) => score as number);
  expect(scores).toEqual([...scores].sort((a, b) => b - a));
  expect(scores.every((score) => score >= 0 && score < 1)).toBe(true);
  for (const { index, document } of results) expect(document).toMatchObject({ text: documents[index as number] });
  expect((await rerank({ top_n: 2 })).results).toEqual(results.slice(0, 2));
  const objects = documents.map((text) => ({ text }));
  expect((await rerank({ documents: objects })).results).toEqual(results);
  expect((await sim.post("/rerank", { query: "fish", documents })).json.results).toEqual(results);
});

test("scores pair one text with many, or many with as many", async () => {
  const sim = await startSim();
  const score = async (body: Json) => (await sim.post("/v1/score", body)).json;
  const many = await score({ text_1: "a", text_2: ["b", "c"] });
  expect(many).toMatchObject({ object: "list", data: [{ index: 0, object: "score" }, { index: 1 }] });
  const pairs = await score({ text_1: ["a", "a"], text_2: ["b", "c"] });
  expect(pairs.data).toEqual(many.data);
  expect((await score({ text_1: "a", text_2: "b" })).data).toEqual((many.data as Json[]).slice(0, 1));
  expect((await sim.post("/score", { text_1: "a", text_2: "b" })).status).toBe(200);
});

test.each([
  ["/v1/embeddings", {}, "input"],
  ["/v1/embeddings", { input: "" }, "prompt"],
  ["/v1/embeddings", { input: "a", dimensions: 0 }, "dimensions"],
  ["/v1/embeddings", { input: "a", dimensions: 8_193 }, "dimensions"],
  ["/v1/embeddings", { input: "a", encoding_format: "int8" }, "encoding_format"],
  ["/v1/rerank", { documents: ["a"] }, "query"],
  ["/v1/rerank", { query: "a" }, "documents"],
  ["/v1/rerank", { query: "a", documents: [1] }, "documents"],
  ["/v1/rerank", { query: "a", documents: Array(257).fill("a") }, "documents"],
  ["/v1/score", { text_1: "a" }, "text_2"],
  ["/v1/score", { text_1: ["a", "b"], text_2: ["a", "b", "c"] }, "text_1"],
])("%s refuses %j", async (path, body, param) => {
  const sim = await startSim();
  const answer = await sim.post(path, body);
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param });
});
