import { expect, test } from "vitest";
import { at, chunksOf, type Json, startSim } from "./sim-client.ts";

const path = "/v1/responses";
const input = "what does the night librarian repair";

const textOf = (body: Json): string => at(body, "output", 0, "content", 0, "text") as string;

test("a whole answer says what it is, whether it is complete, and what it took", async () => {
  const sim = await startSim();
  const answer = (await sim.post(path, { input, max_output_tokens: 6 })).json;
  const { count } = (await sim.post("/tokenize", { messages: [{ role: "user", content: input }] })).json as {
    count: number;
  };
  expect(answer).toMatchObject({
    object: "response",
    model: "tiny",
    status: "incomplete",
    incomplete_details: { reason: "max_output_tokens" },
    previous_response_id: null,
    instructions: null,
    output: [{ type: "message", role: "assistant", content: [{ type: "output_text", annotations: [] }] }],
    usage: {
      input_tokens: count,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 6,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: count + 6,
    },
  });
  expect(answer.id).toMatch(/^resp_[0-9a-f]{16}$/);
  expect(textOf(answer)).toHaveLength(24);
});

test("an answer that ends by itself is complete", async () => {
  const sim = await startSim({ naturalLengthMean: 4 });
  const answer = (await sim.post(path, { input, max_output_tokens: 4_000 })).json;
  expect(answer).toMatchObject({ status: "completed", incomplete_details: null });
});

test("the events of a stream come in order, numbered, and end with the whole answer", async () => {
  const sim = await startSim();
  const whole = (await sim.post(path, { input, max_output_tokens: 3 })).json;
  const events = await sim.events(path, { input, max_output_tokens: 3, stream: true });
  expect(events.map(({ name }) => name)).toEqual([
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
  ]);
  const bodies = chunksOf(events);
  expect(bodies.map(({ type }) => type)).toEqual(events.map(({ name }) => name));
  expect(bodies.map((body) => body.sequence_number)).toEqual(events.map((_, index) => index));
  const deltas = bodies.filter(({ type }) => type === "response.output_text.delta").map(({ delta }) => delta);
  expect(deltas.join("")).toBe(textOf(whole));
  expect(bodies.find(({ type }) => type === "response.output_text.done")?.text).toBe(textOf(whole));
  const completed = bodies.at(-1)?.response as Json;
  expect(textOf(completed)).toBe(textOf(whole));
  expect(completed.usage).toEqual(whole.usage);
  expect(at(bodies[0], "response", "id")).toBe(completed.id);
  expect(at(bodies[0], "response", "status")).toBe("in_progress");
  const itemIds = bodies.map((body) => body.item_id ?? at(body, "item", "id")).filter((id) => id !== undefined);
  expect(new Set(itemIds)).toEqual(new Set([at(completed, "output", 0, "id")]));
});

test("an answer can be continued: the prompt grows by both turns, and the cache has the first", async () => {
  const sim = await startSim();
  const first = (await sim.post(path, { input: input.repeat(8), max_output_tokens: 50 })).json;
  const second = (await sim.post(path, { input: "and then?", previous_response_id: first.id })).json;
  const chat = [
    { role: "user", content: input.repeat(8) },
    { role: "assistant", content: textOf(first) },
    { role: "user", content: "and then?" },
  ];
  const { count } = (await sim.post("/tokenize", { messages: chat })).json as { count: number };
  const firstTokens = at(first, "usage", "total_tokens") as number;
  const computed = firstTokens - 1;
  expect(second.usage).toMatchObject({
    input_tokens: count,
    input_tokens_details: { cached_tokens: computed - (computed % 16) },
  });
  expect(second.previous_response_id).toBe(first.id);
  // A third turn stands on all that came before.
  const third = (await sim.post(path, { input: "and?", previous_response_id: second.id, max_output_tokens: 1 })).json;
  expect(at(third, "usage", "input_tokens")).toBeGreaterThan(count + 128);
});

test("instructions lead the prompt and are not carried on", async () => {
  const sim = await startSim();
  const tokensOf = async (body: Json) =>
    at((await sim.post(path, { max_output_tokens: 1, ...body })).json, "usage", "input_tokens") as number;
  const plain = await tokensOf({ input });
  expect(await tokensOf({ input, instructions: "be brief" })).toBe(plain + 1 + 2 + 1);
  const instructed = (await sim.post(path, { input, instructions: "be brief", max_output_tokens: 1 })).json;
  // The answer of one token stands between its role and an end, then the new turn, then the open one.
  expect(await tokensOf({ input, previous_response_id: instructed.id })).toBe(plain + 1 + 1 + plain);
});

test("input may be a list of messages and items of tools", async () => {
  const sim = await startSim();
  const body = {
    input: [
      { role: "user", content: [{ type: "input_text", text: "go" }] },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "yes " }] },
      { type: "function_call_output", call_id: "1", output: "42" },
    ],
    tools: [{ type: "function", name: "look" }],
    max_output_tokens: 1,
  };
  const item = JSON.stringify({ type: "function_call_output", call_id: "1", output: "42" });
  const { count } = (
    await sim.post("/tokenize", {
      messages: [
        { role: "user", content: "go" },
        { role: "assistant", content: "yes " },
        { role: "tool", content: item },
      ],
      tools: body.tools,
    })
  ).json;
  expect(at((await sim.post(path, body)).json, "usage", "input_tokens")).toBe(count);
});

test("an answer can be read and deleted, once", async () => {
  const sim = await startSim();
  const answer = await sim.post(path, { input, max_output_tokens: 2 });
  const { id } = answer.json;
  expect((await sim.get(`${path}/${id}`)).json).toEqual(answer.json);
  expect((await sim.del(`${path}/${id}`)).json).toEqual({ id, object: "response", deleted: true });
  for (const gone of [await sim.get(`${path}/${id}`), await sim.del(`${path}/${id}`)]) {
    expect(gone.status).toBe(404);
    expect(gone.json.error).toMatchObject({ code: 404, message: `Response with id '${id}' not found.` });
  }
});

test("a streamed answer is kept too, and one with store false is not", async () => {
  const sim = await startSim();
  const events = chunksOf(await sim.events(path, { input, max_output_tokens: 2, stream: true }));
  const response = events.at(-1)?.response as Json;
  expect((await sim.get(`${path}/${response.id}`)).json).toEqual(response);
  const unkept = (await sim.post(path, { input, max_output_tokens: 2, store: false })).json;
  expect(unkept.store).toBe(false);
  expect((await sim.get(`${path}/${unkept.id}`)).status).toBe(404);
});

test("after a thousand answers the oldest is forgotten", async () => {
  const sim = await startSim({ speed: 100_000 });
  const ids: unknown[] = [];
  for (let round = 0; round < 1_001; round++) {
    ids.push((await sim.post(path, { input: "a", max_output_tokens: 1 })).json.id);
  }
  expect((await sim.get(`${path}/${ids[0]}`)).status).toBe(404);
  expect((await sim.get(`${path}/${ids[1]}`)).status).toBe(200);
  expect((await sim.get(`${path}/${ids[1_000]}`)).status).toBe(200);
}, 20_000);

test("another engine does not know the answer", async () => {
  const [one, other] = [await startSim(), await startSim()];
  const { id } = (await one.post(path, { input, max_output_tokens: 1 })).json;
  const answer = await other.post(path, { input, previous_response_id: id });
  expect(answer.status).toBe(404);
  expect(answer.json.error).toMatchObject({ code: 404, type: "NotFoundError" });
});

test.each([
  [{}, "input"],
  [{ input: 5 }, "input"],
  [{ input: [] }, "input"],
  [{ input: ["text"] }, "input.0"],
  [{ input: [{ content: "x" }] }, "input.0.role"],
  [{ input: "x", max_output_tokens: 0 }, "max_output_tokens"],
  [{ input: "x", previous_response_id: 7 }, "previous_response_id"],
  [{ input: "x", instructions: 7 }, "instructions"],
])("refuses %j", async (body, param) => {
  const sim = await startSim();
  const answer = await sim.post(path, body);
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param });
});
