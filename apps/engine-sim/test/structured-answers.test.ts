import { Ajv2020 } from "ajv/dist/2020.js";
import { expect, test } from "vitest";
import { at, chunksOf, type Json, startSim, type TestSim } from "./sim-client.ts";

const path = "/v1/chat/completions";
const user = { role: "user", content: "how high is the tide in Brest at noon" };

const tool = (name: string, parameters?: object) => ({ type: "function", function: { name, parameters } });
const tideParameters = {
  type: "object",
  properties: { place: { type: "string", minLength: 3 }, hour: { type: "integer", minimum: 0, maximum: 23 } },
  required: ["place"],
  additionalProperties: false,
};
const tools = [tool("tide_at", tideParameters), tool("now")];

const ajv = new Ajv2020({ strict: false, validateFormats: false });
const errorsOf = (schema: object | boolean, value: unknown): unknown => {
  ajv.validate(schema, value);
  return ajv.errors;
};

interface Call {
  readonly id: string;
  readonly type: string;
  readonly function: { readonly name: string; readonly arguments: string };
}

interface Delta {
  readonly content?: string | null;
  readonly tool_calls?: readonly (Partial<Call> & { readonly index: number })[];
}

const callOf = ({ json }: { readonly json: Json }): Call => at(json, "choices", 0, "message", "tool_calls", 0) as Call;
const reasonOf = (body: Json): unknown => at(body, "choices", 0, "finish_reason");

/** Puts the deltas of a streamed call together, as clients do. */
async function streamCall(sim: TestSim, body: Json): Promise<{ call: Call; reason: unknown; content: string }> {
  const chunks = chunksOf(await sim.events(path, { messages: [user], tools, stream: true, ...body }));
  const deltas = chunks.map((chunk) => (at(chunk, "choices", 0, "delta") ?? {}) as Delta);
  const parts = deltas.flatMap(({ tool_calls: calls }) => calls ?? []);
  expect(parts.every(({ index }) => index === 0)).toBe(true);
  const [{ id, type, function: named } = {}] = parts;
  const written = parts.map((part) => part.function?.arguments ?? "").join("");
  const reasons = chunks.map(reasonOf).filter((reason) => reason !== null && reason !== undefined);
  expect(reasons).toHaveLength(1);
  return {
    call: { id: id!, type: type!, function: { name: named!.name, arguments: written } },
    reason: reasons[0],
    content: deltas.map(({ content }) => content ?? "").join(""),
  };
}

for (const flavour of ["vllm", "sglang"] as const) {
  test(`${flavour}: a chat with tools is answered with a call whose arguments the schema allows, streamed as whole`, async () => {
    const sim = await startSim({ parameters: { flavour } });
    const whole = await sim.post(path, { messages: [user], tools: [tools[0]] });
    expect(reasonOf(whole.json)).toBe("tool_calls");
    expect(at(whole.json, "choices", 0, "message", "content")).toBeNull();
    const call = callOf(whole);
    expect(call).toMatchObject({ id: expect.stringMatching(/^\S+$/), type: "function", function: { name: "tide_at" } });
    expect(errorsOf(tideParameters, JSON.parse(call.function.arguments))).toBeNull();
    const streamed = await streamCall(sim, { tools: [tools[0]] });
    expect(streamed).toEqual({ call, reason: "tool_calls", content: "" });
  });
}

test("tool_choice is honoured: none, required, a name", async () => {
  const sim = await startSim();
  const none = await sim.post(path, { messages: [user], tools, tool_choice: "none" });
  expect([callOf(none), reasonOf(none.json)]).toEqual([undefined, "stop"]);
  expect(at(none.json, "choices", 0, "message", "content")).toMatch(/^([a-z]{3} )+$/);
  const required = await sim.post(path, { messages: [user], tools, tool_choice: "required" });
  expect([["tide_at", "now"], reasonOf(required.json)]).toEqual([
    expect.arrayContaining([callOf(required).function.name]),
    "tool_calls",
  ]);
  for (const name of ["tide_at", "now"]) {
    const named = await sim.post(path, {
      messages: [user],
      tools,
      tool_choice: { type: "function", function: { name } },
    });
    // vLLM ends the call of a named function with `stop`.
    expect([callOf(named).function.name, reasonOf(named.json)]).toEqual([name, "stop"]);
  }
});

test("the loop of an agent ends: after a tool's result there are words, unless a call is required", async () => {
  const sim = await startSim();
  const call = callOf(await sim.post(path, { messages: [user], tools }));
  const messages = [
    user,
    { role: "assistant", content: null, tool_calls: [call] },
    { role: "tool", tool_call_id: call.id, content: "4.2 m" },
  ];
  const answer = await sim.post(path, { messages, tools });
  expect(at(answer.json, "choices", 0, "message", "content")).toMatch(/^[a-z]{3} /);
  expect(callOf(answer)).toBeUndefined();
  expect(callOf(await sim.post(path, { messages, tools, tool_choice: "required" })).function.name).toBeDefined();
});

test("the same request gets the same call, another prompt or seed another one", async () => {
  const sim = await startSim();
  const ask = async (body: Json) => callOf(await sim.post(path, { messages: [user], tools: [tools[0]], ...body }));
  const first = await ask({});
  expect(await ask({})).toEqual(first);
  const elsewhere = await startSim({ seed: 99 });
  expect(callOf(await elsewhere.post(path, { messages: [user], tools: [tools[0]] }))).toEqual(first);
  expect(await ask({ seed: 7 })).not.toEqual(first);
  expect(await ask({ messages: [{ role: "user", content: "another" }] })).not.toEqual(first);
});

const schemas: readonly (readonly [string, object])[] = [
  [
    "a list of steps by reference, one value that may be null",
    {
      type: "object",
      properties: {
        steps: { type: "array", items: { $ref: "#/$defs/Step" }, minItems: 1 },
        answer: { anyOf: [{ type: "string" }, { type: "null" }] },
      },
      required: ["steps", "answer"],
      additionalProperties: false,
      $defs: {
        Step: {
          type: "object",
          properties: { text: { type: "string" }, rank: { type: "number", exclusiveMinimum: 0 } },
          required: ["text", "rank"],
          additionalProperties: false,
        },
      },
    },
  ],
  [
    "one of two kinds",
    {
      oneOf: [
        {
          type: "object",
          properties: { kind: { const: "sea" }, depth: { type: "integer" } },
          required: ["kind", "depth"],
        },
        { type: "object", properties: { kind: { const: "land" } }, required: ["kind"] },
      ],
    },
  ],
  [
    "a pattern, an enumeration, letters beyond ASCII",
    {
      type: "object",
      properties: {
        code: { type: "string", pattern: "^[A-Z]{2}-\\d{3}$" },
        ort: { enum: ["Müritz", '"sea"\n', "🌊"] },
      },
      required: ["code", "ort"],
    },
  ],
  ["a list", { type: "array", items: { type: "boolean" }, minItems: 3, maxItems: 3 }],
];

for (const [what, schema] of schemas) {
  test(`response_format: ${what}, whole, streamed, and as a text completion`, async () => {
    const sim = await startSim();
    const response_format = { type: "json_schema", json_schema: { name: "wanted", schema, strict: true } };
    const { json } = await sim.post(path, { messages: [user], response_format });
    const content = at(json, "choices", 0, "message", "content") as string;
    expect(errorsOf(schema, JSON.parse(content))).toBeNull();
    expect(reasonOf(json)).toBe("stop");
    const chunks = chunksOf(await sim.events(path, { messages: [user], response_format, stream: true }));
    expect(chunks.map((chunk) => at(chunk, "choices", 0, "delta", "content") ?? "").join("")).toBe(content);
    const completion = await sim.post("/v1/completions", { prompt: "tide", response_format });
    expect(errorsOf(schema, JSON.parse(at(completion.json, "choices", 0, "text") as string))).toBeNull();
  });
}

test("json_object is an object; several choices are several objects", async () => {
  const sim = await startSim();
  const { json } = await sim.post(path, { messages: [user], response_format: { type: "json_object" }, n: 2 });
  const contents = [0, 1].map((index) => at(json, "choices", index, "message", "content") as string);
  expect(contents.map((content) => typeof JSON.parse(content))).toEqual(["object", "object"]);
  expect(contents[0]).not.toBe(contents[1]);
});

test("usage counts the tokens of what was written, and a limit cuts it", async () => {
  const sim = await startSim();
  const response_format = {
    type: "json_schema",
    json_schema: { name: "long", schema: { type: "array", items: { type: "string", minLength: 30 }, minItems: 9 } },
  };
  const { json } = await sim.post(path, { messages: [user], response_format });
  const content = at(json, "choices", 0, "message", "content") as string;
  const { count } = (await sim.post("/tokenize", { prompt: content, add_special_tokens: false })).json;
  expect(at(json, "usage", "completion_tokens")).toBe(count);
  const cut = await sim.post(path, { messages: [user], response_format, max_tokens: 10 });
  const beginning = at(cut.json, "choices", 0, "message", "content") as string;
  expect([reasonOf(cut.json), at(cut.json, "usage", "completion_tokens")]).toEqual(["length", 10]);
  expect(content.startsWith(beginning) && beginning.length > 10).toBe(true);
});

test("a header that sets the length of an answer has words, as in replayed traces", async () => {
  const sim = await startSim();
  const headers = { "x-sim-output-tokens": "7" };
  const { json } = await sim.post(path, { messages: [user], tools, response_format: { type: "json_object" } }, headers);
  expect(at(json, "choices", 0, "message", "content")).toMatch(/^([a-z]{3} ){7}$/);
});

test.each([
  ["tools that are no list", { tools: {} }],
  ["a tool without a name", { tools: [{ type: "function", function: {} }] }],
  ["a choice that is no tool", { tools, tool_choice: { type: "function", function: { name: "sail" } } }],
  ["a choice without tools", { tool_choice: "required" }],
  ["an unknown choice", { tools, tool_choice: "perhaps" }],
  ["a format without a schema", { response_format: { type: "json_schema" } }],
  ["an unknown format", { response_format: { type: "xml" } }],
  [
    "a schema that asks for too much",
    {
      response_format: {
        type: "json_schema",
        json_schema: { name: "x", schema: { type: "string", minLength: 262_145 } },
      },
    },
  ],
  ["more likely tokens than vLLM gives", { logprobs: true, top_logprobs: 21 }],
])("%s: 400, and the engine goes on", async (_, body) => {
  const sim = await startSim();
  expect((await sim.post(path, { messages: [user], ...body })).status).toBe(400);
  expect((await sim.post(path, { messages: [user], max_tokens: 2 })).status).toBe(200);
});

interface TokenLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
  readonly top_logprobs: readonly Omit<TokenLogprob, "top_logprobs">[];
}

test("log-probabilities of a chat: each token, itself the likeliest, streamed as whole", async () => {
  const sim = await startSim();
  const body = { messages: [user], max_tokens: 5, logprobs: true, top_logprobs: 3 };
  const { json } = await sim.post(path, body);
  const content = at(json, "choices", 0, "logprobs", "content") as TokenLogprob[];
  expect(content.map(({ token }) => token).join("")).toBe(at(json, "choices", 0, "message", "content"));
  for (const { token, logprob, bytes, top_logprobs: top } of content) {
    expect(Buffer.from(bytes).toString()).toBe(token);
    expect(top[0]).toEqual({ token, logprob, bytes });
    expect(top.map((each) => each.logprob)).toEqual(top.map((each) => each.logprob).toSorted((a, b) => b - a));
    expect(top.reduce((sum, each) => sum + Math.exp(each.logprob), 0)).toBeLessThan(1);
    expect(new Set(top.map((each) => each.token)).size).toBe(top.length);
  }
  const chunks = chunksOf(await sim.events(path, { ...body, stream: true }));
  expect(chunks.flatMap((chunk) => at(chunk, "choices", 0, "logprobs", "content") ?? [])).toEqual(content);
  const plain = await sim.post(path, { messages: [user], max_tokens: 5 });
  expect(at(plain.json, "choices", 0, "logprobs")).toBeNull();
});

test("log-probabilities of a text completion: tokens with their places in the text", async () => {
  const sim = await startSim();
  const body = { prompt: "high tide", max_tokens: 4, logprobs: 2 };
  const { json } = await sim.post("/v1/completions", body);
  const { tokens, text_offset, token_logprobs, top_logprobs } = at(json, "choices", 0, "logprobs") as {
    readonly tokens: readonly string[];
    readonly text_offset: readonly number[];
    readonly token_logprobs: readonly number[];
    readonly top_logprobs: readonly Readonly<Record<string, number>>[];
  };
  const text = at(json, "choices", 0, "text") as string;
  expect(tokens.map((token, index) => text.startsWith(token, text_offset[index]))).toEqual(Array(4).fill(true));
  expect(tokens.join("")).toBe(text);
  expect(top_logprobs.map((top, index) => top[tokens[index]!])).toEqual(token_logprobs);
  const chunks = chunksOf(await sim.events("/v1/completions", { ...body, stream: true }));
  expect(chunks.flatMap((chunk) => at(chunk, "choices", 0, "logprobs", "text_offset") ?? [])).toEqual(text_offset);
});
