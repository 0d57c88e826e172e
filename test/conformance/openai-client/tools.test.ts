import type { OpenAI } from "openai";
import type { RunnableToolFunctionWithParse } from "openai/lib/RunnableFunction";
import { afterEach, expect, test } from "vitest";
import { createRig } from "../../integration/rig.ts";
import { openAiClient } from "./client.ts";

/** What frameworks for agents do with the official client, against a router before simulated engines. */
const rig = createRig();
afterEach(() => rig.close());

async function start(): Promise<OpenAI> {
  const sims = await rig.sims(2);
  return openAiClient(await rig.router({ engines: sims.map(({ url }) => url) }));
}

const question = { role: "user", content: "How high is the tide in Brest at noon?" } as const;

interface TideCall {
  readonly place: string;
  readonly hour: number;
}

/** A tool as the client's runner takes it, which notes its calls. */
function tideTool() {
  const calls: TideCall[] = [];
  const tool: RunnableToolFunctionWithParse<TideCall> = {
    type: "function",
    function: {
      name: "tide_at",
      description: "Height of the tide at a place.",
      parameters: {
        type: "object",
        properties: { place: { type: "string" }, hour: { type: "integer", minimum: 0, maximum: 23 } },
        required: ["place", "hour"],
        additionalProperties: false,
      },
      parse: JSON.parse,
      function: (call) => {
        calls.push(call);
        return "4.2 m";
      },
    },
  };
  return { tool, calls };
}

test.each([{ stream: false }, { stream: true }] as const)(
  "the runner of tools calls one, brings its result, and ends with an answer; streamed: $stream",
  async ({ stream }) => {
    const client = await start();
    const { tool, calls } = tideTool();
    const given = { model: "tiny", messages: [question], tools: [tool], max_tokens: 200 };
    const runner = stream
      ? client.chat.completions.runTools({ ...given, stream: true })
      : client.chat.completions.runTools(given);
    expect((await runner.finalContent())?.length).toBeGreaterThan(0);
    expect(calls).toEqual([{ place: expect.any(String), hour: expect.any(Number) }]);
    expect(runner.messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
  },
);

test("a JSON schema is parsed by the client's helper", async () => {
  const client = await start();
  const schema = {
    type: "object",
    properties: { place: { type: "string" }, heights: { type: "array", items: { type: "number" }, minItems: 2 } },
    required: ["place", "heights"],
    additionalProperties: false,
  };
  const completion = await client.chat.completions.parse({
    model: "tiny",
    messages: [question],
    response_format: { type: "json_schema", json_schema: { name: "tide", strict: true, schema } },
  });
  const { content } = completion.choices[0]!.message;
  expect(JSON.parse(content!)).toEqual({
    place: expect.any(String),
    heights: expect.arrayContaining([expect.any(Number)]),
  });
});

test("log-probabilities come through whole and put together by the stream helper", async () => {
  const client = await start();
  const request = { model: "tiny", messages: [question], max_tokens: 4, logprobs: true, top_logprobs: 2 };
  const whole = (await client.chat.completions.create(request)).choices[0]!;
  expect(whole.logprobs!.content!.map(({ token }) => token).join("")).toBe(whole.message.content);
  const streamed = (await client.chat.completions.stream(request).finalChatCompletion()).choices[0]!;
  expect(streamed.logprobs!.content).toEqual(whole.logprobs!.content);
  const text = await client.completions.create({ model: "tiny", prompt: "tide", max_tokens: 3, logprobs: 1 });
  expect(text.choices[0]!.logprobs!.tokens!.join("")).toBe(text.choices[0]!.text);
});
