import { type Endpoint, endpoints, readRequestView } from "@espalier/api";
import { scanBody, silentLogger, systemClock, systemScheduler } from "@espalier/core";
import { createModelTokenizer, createPromptHasher, shippedModelFolder } from "@espalier/tokenizer";
import { describe, expect, test } from "vitest";
import type { BodyTask, PromptTerms } from "../../src/large-bodies/large-bodies.ts";
import { BodyRequest, createBodyReader, frameOf } from "../../src/large-bodies/read-large-body.ts";

const chat = endpoints.find(({ id }) => id === "chat") as Endpoint;
const rules = { maxDepth: 64, trustsTransferFields: false };
const text = "What a router reads of a body. ".repeat(8_000);
const fields = {
  model: "tiny",
  max_tokens: 7,
  stream: true,
  user: "u-1",
  cache_salt: "salt",
  tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }],
  messages: [
    { role: "system", content: "Be brief." },
    { role: "user", content: text },
  ],
};
const bytesOf = (value: object): Buffer => Buffer.from(JSON.stringify(value));
const readTask = (bodyId: number, value: object, trustsTransferFields = false): BodyTask => ({
  bodyId,
  bytes: bytesOf(value),
  job: { kind: "read", path: chat.path, rules: { ...rules, trustsTransferFields } },
});
const promptTask = (bodyId: number, value: object, terms: Partial<PromptTerms> = {}): BodyTask => ({
  bodyId,
  bytes: bytesOf(value),
  job: {
    kind: "prompt",
    endpoint: "chat",
    terms: { folder: undefined, dialect: "vllm-0.32", blockSize: 16, cacheBytes: 1_048_576, ...terms },
  },
});

test("a view is what it would be had the body been read at once", async () => {
  const found = await createBodyReader()(readTask(1, fields));
  if (found.kind !== "read") throw new Error(found.kind);
  const { endpoint: _, body: __, spans, ...plain } = readRequestView(chat, bytesOf(fields), rules);
  const { frame, spans: reported, ...view } = found.view;
  expect(view).toEqual(plain);
  expect(new Map(reported)).toEqual(new Map([...spans].map(([name, { start, end }]) => [name, { start, end }])));
  expect(JSON.parse(Buffer.from(frame).toString())).toEqual({ ...fields, messages: [] });
});

test.each([
  ["over its bytes", undefined, "bytes"],
  ["by the model's files", shippedModelFolder(), "local"],
] as const)("a prompt is cut %s as it would be at once", async (_, folder, mode) => {
  const read = createBodyReader();
  await read(readTask(1, fields));
  const found = await read(promptTask(1, fields, { folder }));
  if (found.kind !== "prompt") throw new Error(found.kind);
  const tokenizer = await createModelTokenizer({
    ...{ model: "tiny", mode, folder: folder ?? "", blockSize: 16, hasher: createPromptHasher() },
    ...{ clock: systemClock, scheduler: systemScheduler, logger: silentLogger },
  });
  const body = readRequestView(chat, bytesOf(fields), rules).body;
  expect(found.prompt).toEqual(await tokenizer.view(new BodyRequest("chat", body, "vllm-0.32")));
  expect(found.prompt.blocks).toBeGreaterThan(500);
});

test("a prompt is that of its own body, also when another was read meanwhile", async () => {
  const read = createBodyReader();
  const others = { ...fields, messages: [{ role: "user", content: "Another." }] };
  await read(readTask(1, fields));
  await read(readTask(2, others));
  const [one, other] = [await read(promptTask(1, fields)), await read(promptTask(2, others))];
  expect(one).toEqual(await createBodyReader()(promptTask(3, fields)));
  expect(other).toEqual(await createBodyReader()(promptTask(3, others)));
});

test.each([
  [{ model: "tiny" }, "missing_field", "messages"],
  [{ ...fields, kv_transfer_params: { remote_host: "h".repeat(9_000) } }, "reserved_field", "kv_transfer_params"],
  // The list of them would not stand in the frame.
  [{ ...fields, vllm_xargs: { x: "x".repeat(9_000), kv_transfer_params: {} } }, "reserved_field", undefined],
])("%# refusals are told with their code and field", async (value, code, param) => {
  const refusal = await createBodyReader()(readTask(1, value));
  expect(refusal).toMatchObject({ kind: "refused", code, ...(param === undefined ? {} : { param }) });
});

test("fields of KV transfer pass where clients are trusted with them", async () => {
  const found = await createBodyReader()(readTask(1, { ...fields, kv_transfer_params: {} }, true));
  expect(found.kind).toBe("read");
});

test("a model is found in a body of no known endpoint", async () => {
  const read = createBodyReader();
  const asJson = { contentType: "application/json", trustsTransferFields: false };
  const task = (value: Buffer): BodyTask => ({ bodyId: 1, bytes: value, job: { kind: "model", forwarded: asJson } });
  expect(await read(task(bytesOf({ pad: text, model: "tiny" })))).toEqual({ kind: "model", model: "tiny" });
  expect(await read(task(bytesOf({ model: 7 })))).toEqual({ kind: "model", model: undefined });
  expect(await read(task(Buffer.from("{")))).toMatchObject({ kind: "refused", code: "invalid_json" });
});

describe("a frame", () => {
  const frame = (value: object): Record<string, unknown> => {
    const body = scanBody(bytesOf(value), 64);
    if (typeof body === "string") throw new Error(body);
    return JSON.parse(frameOf(body, createPromptHasher()).toString()) as Record<string, unknown>;
  };
  const long = "x".repeat(9_000);

  test("has small members as they are, and of large ones what they are", () => {
    expect(
      frame({
        a: 1.5,
        b: [1, [2]],
        c: { d: null },
        e: "é\u0001",
        texts: [long],
        ids: Array(9_000).fill(1),
        o: { long },
      }),
    ).toEqual({ a: 1.5, b: [1, [2]], c: { d: null }, e: "é\u0001", texts: [], ids: [0], o: {} });
  });

  test("tells long strings apart that begin alike, and leaves them longer than any key that is taken", () => {
    const { a, b, c } = frame({ a: `${long}1`, b: `${long}2`, c: `${long}1` });
    expect(a).toBe(c);
    expect(a).not.toBe(b);
    expect(String(a).length).toBeGreaterThan(1_024);
  });

  test("is bounded: members beyond 256 KiB together are left out like large ones, those after them are there again", () => {
    const many = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`key${at}`, "y".repeat(8_000)]));
    const found = frame({ ...many, last: 1 });
    expect(Object.keys(found)).toHaveLength(41);
    expect(found.key31).toBe(many.key31);
    expect(String(found.key39).length).toBeLessThan(2_100);
    expect(found.last).toBe(1);
    expect(frame({ [long]: 1, short: 2 })).toEqual({ short: 2 });
  });
});
