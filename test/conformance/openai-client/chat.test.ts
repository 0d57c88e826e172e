import { afterEach, expect, test } from "vitest";
import { createRig } from "../../integration/rig.ts";
import { collect, openAiClient } from "./client.ts";

const rig = createRig();
afterEach(() => rig.close());

const messages = [
  { role: "system", content: "You are brief." },
  { role: "user", content: "What is an espalier?" },
] as const;

async function start(count = 1) {
  const sims = await rig.sims(count);
  const router = await rig.router({ engines: sims.map(({ url }) => url) });
  return { sims, router, client: openAiClient(router) };
}

test("a chat completion has a text, a reason why it ended, and a usage", async () => {
  const { client } = await start();
  const completion = await client.chat.completions.create({ model: "tiny", messages: [...messages], max_tokens: 12 });
  expect(completion).toMatchObject({
    object: "chat.completion",
    model: "tiny",
    choices: [{ index: 0, finish_reason: "length", message: { role: "assistant" } }],
    usage: { completion_tokens: 12 },
  });
  const { prompt_tokens, total_tokens } = completion.usage!;
  expect(prompt_tokens).toBeGreaterThan(10);
  expect(total_tokens).toBe(prompt_tokens + 12);
  expect(completion.choices[0]!.message.content!.trim().split(/\s+/)).toHaveLength(12);
});

test("the answer says which engine gave it, and carries the client's request id through to the engine", async () => {
  const { client, sims } = await start();
  const headers = { "x-request-id": "req-of-the-client" };
  const { response, request_id: requestId } = await client.chat.completions
    .create({ model: "tiny", messages: [...messages], max_tokens: 2 }, { headers })
    .withResponse();
  expect(requestId).toBe("req-of-the-client");
  expect(response.headers.get("x-espalier-engine")).toBe(sims[0]!.id);
  const [logged] = (await sims[0]!.state()).requests;
  expect(logged?.headers).toMatchObject({ "x-request-id": "req-of-the-client" });
});

test("several choices of one prompt stay apart, whole and streamed", async () => {
  const { client } = await start();
  const request = { model: "tiny", messages: [...messages], max_tokens: 6, n: 3 };
  const whole = await client.chat.completions.create(request);
  const texts = whole.choices.map((choice) => choice.message.content);
  expect(new Set(texts).size).toBe(3);
  expect(whole.usage?.completion_tokens).toBe(18);

  const streamed = ["", "", ""];
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    for (const { index, delta } of chunk.choices) streamed[index] += delta.content ?? "";
  }
  expect(streamed).toEqual(texts);
});

test("a stream brings the same text in pieces, the reason in the last piece, and no usage that nobody asked for", async () => {
  const { client } = await start();
  const request = { model: "tiny", messages: [...messages], max_tokens: 20 };
  const whole = await client.chat.completions.create(request);
  const chunks = await collect(await client.chat.completions.create({ ...request, stream: true }));
  expect(chunks[0]!.choices[0]!.delta.role).toBe("assistant");
  expect(chunks.map((chunk) => chunk.choices[0]!.delta.content ?? "").join("")).toBe(whole.choices[0]!.message.content);
  expect(chunks.length).toBeGreaterThan(10);
  expect(chunks.map((chunk) => chunk.choices[0]!.finish_reason)).toEqual([
    ...Array.from({ length: chunks.length - 1 }, () => null),
    "length",
  ]);
  expect(chunks.every((chunk) => chunk.choices.length === 1 && (chunk.usage ?? null) === null)).toBe(true);
  expect(new Set(chunks.map(({ id, model }) => `${id} ${model}`)).size).toBe(1);
});

test("a stream that asks for its usage ends with it, in a chunk without choices", async () => {
  const { client } = await start();
  const chunks = await collect(
    await client.chat.completions.create({
      model: "tiny",
      messages: [...messages],
      max_tokens: 7,
      stream: true,
      stream_options: { include_usage: true },
    }),
  );
  const last = chunks.at(-1)!;
  expect(last.choices).toEqual([]);
  expect(last.usage).toMatchObject({ completion_tokens: 7, total_tokens: last.usage!.prompt_tokens + 7 });
  expect(chunks.slice(0, -1).every((chunk) => (chunk.usage ?? null) === null)).toBe(true);
});

test("the usage says how much of a repeated prompt the engine had cached", async () => {
  const { client } = await start();
  const content = "An espalier is a tree trained flat against a wall. ".repeat(20);
  const ask = () =>
    client.chat.completions.create({ model: "tiny", messages: [{ role: "user", content }], max_tokens: 1 });
  expect((await ask()).usage?.prompt_tokens_details?.cached_tokens).toBe(0);
  const again = (await ask()).usage!;
  expect(again.prompt_tokens_details!.cached_tokens).toBeGreaterThan(again.prompt_tokens * 0.8);
});

test("the stream helper of the client puts the answer together", async () => {
  const { client } = await start();
  const deltas: string[] = [];
  const stream = client.chat.completions.stream({
    model: "tiny",
    messages: [...messages],
    max_tokens: 9,
    stream_options: { include_usage: true },
  });
  stream.on("content", (delta) => deltas.push(delta));
  const completion = await stream.finalChatCompletion();
  expect(completion.choices[0]).toMatchObject({ finish_reason: "length", message: { content: deltas.join("") } });
  expect((await stream.totalUsage()).completion_tokens).toBe(9);
});

test("parts, tools and fields that the router does not know pass through", async () => {
  const { client } = await start();
  const completion = await client.chat.completions.create({
    model: "tiny",
    messages: [
      { role: "user", content: [{ type: "text", text: "Look it up." }] },
      {
        role: "assistant",
        tool_calls: [{ id: "call-1", type: "function", function: { name: "look", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "call-1", content: "a trained tree" },
    ],
    tools: [{ type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } }],
    max_completion_tokens: 4,
    seed: 9_007_199_254_740_991,
    metadata: { colour: "green" },
  });
  expect(completion.usage?.completion_tokens).toBe(4);
});

test("many streams at once over several engines all come whole and unmixed", async () => {
  const { client, sims } = await start(3);
  const answers = await Promise.all(
    Array.from({ length: 40 }, async (_, at) => {
      const request = {
        model: "tiny",
        messages: [{ role: "user" as const, content: `question ${at}` }],
        max_tokens: 15,
      };
      const chunks = await collect(await client.chat.completions.create({ ...request, stream: true }));
      return { at, text: chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("") };
    }),
  );
  expect(new Set(answers.map(({ text }) => text)).size).toBe(40);
  for (const { text } of answers) expect(text.trim().split(/\s+/)).toHaveLength(15);
  const finished = await Promise.all(sims.map(async (sim) => (await sim.state()).totals.finished ?? 0));
  expect(finished.reduce((sum, count) => sum + count, 0)).toBe(40);
  expect(Math.min(...finished)).toBeGreaterThan(0);
});
