import { expect, test } from "vitest";
import { planReplay } from "../src/replay/replay-plan.ts";
import { temporaryFile } from "./temporary.ts";

interface Row {
  readonly timestamp: number;
  readonly input_length: number;
  readonly output_length: number;
  readonly hash_ids: readonly number[];
}

const lines = (rows: readonly object[]): string => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

const row = (timestamp: number, ...blocks: number[]): Row => ({
  timestamp,
  input_length: blocks.length * 512,
  output_length: 10 + blocks.length,
  hash_ids: blocks,
});

/** Three steps of 3 s; what begins with the same blocks continues the same text. */
const mooncake = [row(0, 0, 1), row(0, 0, 2), row(3_000, 0, 1, 3), row(3_000, 4), row(6_001, 0, 1, 3, 5)];

const plan = (rows: readonly object[], options: object = {}) =>
  planReplay({ path: temporaryFile("trace.jsonl", lines(rows)), model: "tiny", seed: 1, ...options });

const textOf = (body: string): string => JSON.parse(body).messages[0].content as string;

test("a body asks for a stream with its usage, as many tokens as the trace has, and no end before", async () => {
  const [first] = await plan(mooncake);
  const { messages, ...fields } = JSON.parse(first!.makeBody());
  expect(fields).toEqual({
    model: "tiny",
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: 12,
    ignore_eos: true,
  });
  expect(messages).toEqual([{ role: "user", content: expect.any(String) }]);
});

test("as tokens a prompt is a completion with an id for each token of the trace, its own prompts stay text", async () => {
  const [first, , third] = await plan(mooncake, { prompts: "tokens" });
  expect(first!.path).toBe("/v1/completions");
  const { prompt, max_tokens: maxTokens } = JSON.parse(first!.makeBody());
  expect([prompt.length, maxTokens]).toEqual([1_024, 12]);
  expect(JSON.parse(third!.makeBody()).prompt.slice(0, 1_024)).toEqual(prompt);
  const rows = [{ prompt: "hello", output_length: 3 }];
  const [own] = await plan(rows as never, { prompts: "tokens" });
  expect(own!.path).toBe("/v1/chat/completions");
  expect(textOf(own!.makeBody())).toBe("hello");
});

test("a prompt has a word for each token of the trace", async () => {
  for (const { trace, makeBody } of await plan(mooncake)) {
    expect(textOf(makeBody()).trim().split(" ")).toHaveLength(trace.inputTokens);
  }
});

test("blocks that requests share at their beginning are the same text, others are not", async () => {
  const texts = (await plan(mooncake)).map(({ makeBody }) => textOf(makeBody()));
  const blockBytes = 512 * 4;
  const block = (request: number, at: number) => texts[request]!.slice(at * blockBytes, (at + 1) * blockBytes);
  expect(block(1, 0)).toBe(block(0, 0));
  expect(block(1, 1)).not.toBe(block(0, 1));
  expect(texts[2]!.startsWith(texts[0]!)).toBe(true);
  expect(texts[4]!.startsWith(texts[2]!)).toBe(true);
  expect(texts[3]!.slice(0, 100)).not.toBe(texts[0]!.slice(0, 100));
});

test("the same trace and seed give the same plan, to the byte; another seed moves the arrivals only", async () => {
  const shape = async (seed: number) =>
    (await plan(mooncake, { seed })).map(({ trace, makeBody }) => ({ at: trace.arrivalMs, body: makeBody() }));
  const [one, again, other] = [await shape(7), await shape(7), await shape(8)];
  expect(again).toEqual(one);
  expect(other.map(({ body }) => body)).toEqual(one.map(({ body }) => body));
  expect(other.map(({ at }) => at)).not.toEqual(one.map(({ at }) => at));
});

test("text that the trace does not name is invented by the seed", async () => {
  const azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.1,40,5\n2023-11-16 18:17:04.6,40,5\n";
  const texts = async (seed: number) => {
    const requests = await planReplay({ path: temporaryFile("trace.csv", azure), model: "tiny", seed });
    return requests.map(({ makeBody }) => textOf(makeBody()));
  };
  const one = await texts(1);
  expect(await texts(1)).toEqual(one);
  expect(new Set([...one, ...(await texts(2))]).size).toBe(4);
});

test("times rounded to 3 s are spread inside their steps, in the order of the trace", async () => {
  const rows = Array.from({ length: 60 }, (_, at) => row(Math.floor(at / 20) * 3_000 + Math.floor((at % 20) / 7), at));
  const requests = await plan(rows);
  const arrivals = requests.map(({ trace }) => trace.arrivalMs);
  expect(arrivals).toEqual([...arrivals].sort((one, other) => one - other));
  for (const [at, arrivalMs] of arrivals.entries()) expect(Math.floor(arrivalMs / 3_000)).toBe(Math.floor(at / 20));
  expect(new Set(arrivals).size).toBe(60);
  expect(requests.map(({ trace }) => trace.blockIds![0])).toEqual(rows.map(({ hash_ids: [block] }) => block));
});

test("other times stay as they are", async () => {
  const rows = [row(0, 1), row(3_000, 2), row(3_400, 3), row(6_000, 4)];
  expect((await plan(rows)).map(({ trace }) => trace.arrivalMs)).toEqual([0, 3_000, 3_400, 6_000]);
});

// Any trace in which times repeat used to count as rounded: prompts without times were spread over 3 s.
test("prompts without times are all due at once, and are sent as they are", async () => {
  const prompts = Array.from({ length: 20 }, (_, at) => ({ prompt: `question ${at}`, max_tokens: 3, session: "s" }));
  const requests = await plan(prompts);
  expect(requests.map(({ trace }) => trace.arrivalMs)).toEqual(Array(20).fill(0));
  expect(requests.map(({ makeBody }) => textOf(makeBody()))).toEqual(prompts.map(({ prompt }) => prompt));
  expect(requests.map(({ trace }) => trace.session)).toEqual(Array(20).fill("s"));
});

test("the messages of a trace are sent as they are", async () => {
  const messages = [
    { role: "system", content: "brief" },
    { role: "user", content: [{ type: "text", text: "hello" }] },
  ];
  const [request] = await plan([{ messages }]);
  expect(JSON.parse(request!.makeBody()).messages).toEqual(messages);
});

test("a limit reads the beginning only: what is wrong after it does not matter", async () => {
  const path = temporaryFile("trace.jsonl", `${lines(mooncake)}broken\n`);
  expect(await planReplay({ path, model: "tiny", seed: 1, limit: 5 })).toHaveLength(5);
  await expect(planReplay({ path, model: "tiny", seed: 1 })).rejects.toMatchObject({
    code: "trace_invalid",
    message: `${path}:6: line: is not valid JSON`,
  });
});

test("a format that is named is the one that is read", async () => {
  const path = temporaryFile("trace.jsonl", lines(mooncake));
  await expect(planReplay({ path, format: "bailian", model: "tiny", seed: 1 })).rejects.toMatchObject({
    code: "trace_invalid",
    message: expect.stringContaining(`${path}:1: chat_id`),
  });
});
