/** Bodies are read as vLLM and SGLang read them: with pydantic in its lax mode. */
import { expect, test } from "vitest";
import { at, startSim } from "./sim-client.ts";

const messages = [{ role: "user", content: "hello" }];

test.each(["vllm", "sglang"] as const)("%s takes numbers and booleans as strings", async (flavour) => {
  const sim = await startSim({ parameters: { flavour } });
  const answer = await sim.post("/v1/chat/completions", { messages, max_tokens: " 3 ", n: "1", stream: "No" });
  expect([answer.status, at(answer.json, "usage", "completion_tokens")]).toEqual([200, 3]);
  const stream = await sim.post("/v1/chat/completions", { messages, max_tokens: "1.0", stream: 1 });
  expect(stream.headers.get("content-type")).toContain("text/event-stream");
});

test.each([[{}], [{ model: null }], [{ model: "" }]])("vLLM answers %j by its first model", async (named) => {
  const sim = await startSim({ models: ["tiny", "alias"] });
  const answer = await sim.post("/v1/chat/completions", { ...named, messages, max_tokens: 1 });
  expect([answer.status, answer.json.model]).toEqual([200, "tiny"]);
});

test("rerank takes documents as one object of parts", async () => {
  const sim = await startSim();
  const documents = {
    content: [
      { type: "text", text: "a dog" },
      { type: "text", text: "a cat" },
    ],
  };
  const answer = await sim.post("/v1/rerank", { query: "cat", documents });
  expect([answer.status, (answer.json.results as unknown[]).length]).toEqual([200, 2]);
});
