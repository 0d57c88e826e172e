import { afterEach, expect, test } from "vitest";
import { createRig } from "../../integration/rig.ts";
import { collect, openAiClient } from "./client.ts";

const rig = createRig();
afterEach(() => rig.close());

async function start(config = {}) {
  const sims = await rig.sims(2, { models: ["tiny", "second-name"] });
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  return openAiClient(router);
}

test("a text completion, of one prompt and of several", async () => {
  const client = await start();
  const one = await client.completions.create({ model: "tiny", prompt: "Once", max_tokens: 5 });
  expect(one).toMatchObject({ object: "text_completion", model: "tiny", usage: { completion_tokens: 5 } });
  expect(one.choices[0]).toMatchObject({ index: 0, finish_reason: "length" });
  const several = await client.completions.create({ model: "tiny", prompt: ["Once", "Twice"], max_tokens: 5, n: 2 });
  expect(several.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  expect(several.choices[0]!.text).toBe(one.choices[0]!.text);
});

test("a streamed text completion, with its usage", async () => {
  const client = await start();
  const request = { model: "tiny", prompt: "Once upon a time", max_tokens: 11 };
  const whole = await client.completions.create(request);
  const chunks = await collect(
    await client.completions.create({ ...request, stream: true, stream_options: { include_usage: true } }),
  );
  expect(chunks.map((chunk) => chunk.choices[0]?.text ?? "").join("")).toBe(whole.choices[0]!.text);
  expect(chunks.at(-1)!.usage).toMatchObject({ completion_tokens: 11 });
});

test("embeddings, which the client asks for in base64 and decodes", async () => {
  const client = await start();
  const { data, usage } = await client.embeddings.create({
    model: "tiny",
    input: ["one", "two", "one"],
    dimensions: 16,
  });
  expect(data.map(({ index, object }) => [index, object])).toEqual([
    [0, "embedding"],
    [1, "embedding"],
    [2, "embedding"],
  ]);
  for (const { embedding } of data) {
    expect(embedding).toHaveLength(16);
    expect(Math.hypot(...embedding)).toBeCloseTo(1, 5);
  }
  expect(data[0]!.embedding).toEqual(data[2]!.embedding);
  expect(data[0]!.embedding).not.toEqual(data[1]!.embedding);
  expect(usage.prompt_tokens).toBeGreaterThan(0);

  const floats = await client.embeddings.create({
    model: "tiny",
    input: "one",
    dimensions: 16,
    encoding_format: "float",
  });
  for (const [at, value] of floats.data[0]!.embedding.entries()) {
    expect(value).toBeCloseTo(data[0]!.embedding[at]!, 6);
  }
});

test("the list of models has each once, the engines' and the aliases, and each can be retrieved", async () => {
  const client = await start({ models: { aliases: { "gpt-4o": "tiny", "team/chat": "tiny" } } });
  const models = await collect(client.models.list());
  expect(models.map(({ id }) => id)).toEqual(["second-name", "tiny", "gpt-4o", "team/chat"]);
  for (const model of models) {
    expect(model).toMatchObject({ object: "model", created: expect.any(Number), owned_by: expect.any(String) });
    expect(await client.models.retrieve(model.id)).toEqual(model);
  }
});

test("an alias answers as the model it stands for", async () => {
  const client = await start({ models: { aliases: { "gpt-4o": "tiny" } } });
  const messages = [{ role: "user" as const, content: "hello" }];
  const aliased = await client.chat.completions.create({ model: "gpt-4o", messages, max_tokens: 4 });
  const direct = await client.chat.completions.create({ model: "tiny", messages, max_tokens: 4 });
  expect(aliased.model).toBe("tiny");
  expect(aliased.choices[0]!.message.content).toBe(direct.choices[0]!.message.content);
});
