import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type BodyEdits, type Endpoint, editBody, readRequestView } from "../src/index.ts";
import {
  bytesOf,
  captured,
  capturedRequests,
  chat,
  completions,
  endpointAt,
  generate,
  limits,
  smallChat,
} from "./helpers.ts";

function edited(endpoint: Endpoint, text: string, edits: BodyEdits): string {
  const body = Buffer.from(text);
  return Buffer.concat([...editBody(body, readRequestView(endpoint, body, limits), edits)]).toString("utf8");
}

const rest = '"messages":[{}]';

describe("the model is exchanged in place", () => {
  test.each([
    ["another name", `{"model":"a",${rest}}`, `{"model":"b",${rest}}`],
    ["at the end", `{${rest},"model":"a"}`, `{${rest},"model":"b"}`],
    ["with white space about", `{ "model" :\t"a" ,\n${rest} }`, `{ "model" :\t"b" ,\n${rest} }`],
    ["an escaped key", `{"\\u006dodel":"a",${rest}}`, `{"\\u006dodel":"b",${rest}}`],
    ["an escaped name", `{"model":"\\u0061\\"",${rest}}`, `{"model":"b",${rest}}`],
    ["the same word elsewhere", `{"user":"model","model":"a",${rest}}`, `{"user":"model","model":"b",${rest}}`],
    ["behind text that is not ASCII", `{"é世":"é世","model":"a",${rest}}`, `{"é世":"é世","model":"b",${rest}}`],
  ])("%s", (_, before, after) => {
    expect(edited(chat, before, { model: "b" })).toBe(after);
  });

  test("and written as JSON, whatever is in it", () => {
    const model = 'org/"näme"\\\n😀';
    const after = edited(chat, `{"model":"a",${rest}}`, { model });
    expect(JSON.parse(after)).toEqual({ model, messages: [{}] });
  });

  test.each([
    ["absent", '{"text":"x"}', '{"model":"b","text":"x"}'],
    ["null", '{"text":"x","model":null}', '{"text":"x","model":"b"}'],
    ["absent, white space first", ' \n{ "text":"x"}', ' \n{"model":"b", "text":"x"}'],
  ])("or added where the endpoint does without: %s", (_, before, after) => {
    expect(edited(generate, before, { model: "b" })).toBe(after);
  });
});

describe("usage is asked for", () => {
  const base = `"model":"m",${rest}`;
  const on = '"include_usage":true';
  test.each([
    ["no options", `{${base}}`, `{"stream_options":{${on}},${base}}`],
    ["no options, white space first", `\r\n{ ${base}}`, `\r\n{"stream_options":{${on}}, ${base}}`],
    ["null", `{${base},"stream_options":null}`, `{${base},"stream_options":{${on}}}`],
    ["an empty object", `{"stream_options":{},${base}}`, `{"stream_options":{${on}},${base}}`],
    ["an empty object with space in it", `{"stream_options":{ },${base}}`, `{"stream_options":{${on} },${base}}`],
    [
      "other options",
      `{"stream_options":{"continuous_usage_stats":false},${base}}`,
      `{"stream_options":{${on},"continuous_usage_stats":false},${base}}`,
    ],
    ["false", `{"stream_options":{"include_usage":false},${base}}`, `{"stream_options":{${on}},${base}}`],
    [
      "null in it",
      `{"stream_options":{"include_usage": null },${base}}`,
      `{"stream_options":{"include_usage": true },${base}}`,
    ],
    [
      "false among others",
      `{"stream_options":{"a":[{}],"include_usage":false,"b":"}"},${base}}`,
      `{"stream_options":{"a":[{}],"include_usage":true,"b":"}"},${base}}`,
    ],
    [
      "an escaped spelling",
      `{"stream_options":{"include\\u005fusage":false},${base}}`,
      `{"stream_options":{"include\\u005fusage":true},${base}}`,
    ],
    [
      "deeper down, where it means nothing",
      `{"stream_options":{"x":{"include_usage":false}},${base}}`,
      `{"stream_options":{${on},"x":{"include_usage":false}},${base}}`,
    ],
    [
      "next to text that is not ASCII",
      `{"é":"世","stream_options":{"é":"世","include_usage":false},${base}}`,
      `{"é":"世","stream_options":{"é":"世","include_usage":true},${base}}`,
    ],
  ])("%s", (_, before, after) => {
    expect(edited(chat, before, { includeUsage: true })).toBe(after);
  });
});

test.each<[string, BodyEdits]>([
  ["no edit", {}],
  ["the model that it has", { model: "m" }],
])("a body that needs no change comes back itself: %s", (_, edits) => {
  const body = bytesOf({ ...smallChat, stream_options: { include_usage: true } });
  const pieces = editBody(body, readRequestView(chat, body, limits), edits);
  expect(pieces).toHaveLength(1);
  expect(pieces[0]).toBe(body);
});

test("all edits at once, in either order of the fields", () => {
  const edits = { model: "b", includeUsage: true } as const;
  expect(edited(chat, `{"model":"a","stream_options":null,${rest}}`, edits)).toBe(
    `{"model":"b","stream_options":{"include_usage":true},${rest}}`,
  );
  expect(edited(chat, `{"stream_options":{},${rest},"model":"a"}`, edits)).toBe(
    `{"stream_options":{"include_usage":true},${rest},"model":"b"}`,
  );
  expect(edited(chat, `{${rest},"model":"a"}`, edits)).toBe(
    `{"stream_options":{"include_usage":true},${rest},"model":"b"}`,
  );
});

test("what JSON.stringify would change survives", () => {
  const odd =
    '{"model":"a", "bootstrap_room":9223372036854775807,"x":1.0,"y":1E2,"z":-0,"t":"\\u0041\\/",\r\n"messages":[{"b":1,"a":2}]}';
  expect(edited(chat, odd, { model: "b", includeUsage: true })).toBe(
    `{"stream_options":{"include_usage":true},${odd.slice(1).replace('"a"', '"b"')}`,
  );
});

test("the pieces share memory with the body, and the body is not written to", () => {
  const body = bytesOf(smallChat);
  const copy = Buffer.from(body);
  const pieces = editBody(body, readRequestView(chat, body, limits), { model: "other" });
  expect(pieces).toHaveLength(3);
  expect(pieces[0]?.buffer).toBe(body.buffer);
  expect(pieces[2]?.buffer).toBe(body.buffer);
  expect(body.equals(copy)).toBe(true);
});

/** The same edit on the parsed body, done naively. */
function naive(text: string, edits: BodyEdits): Record<string, unknown> {
  const parsed = JSON.parse(text) as Record<string, unknown>;
  if (edits.model !== undefined) parsed.model = edits.model;
  if (edits.includeUsage) {
    parsed.stream_options = { ...(parsed.stream_options as object | null), include_usage: true };
  }
  return parsed;
}

const space = fc.constantFrom("", " ", "\n", "\t ", "\r\n");
const jsonText = fc
  .tuple(fc.jsonValue({ maxDepth: 3, stringUnit: "binary" }), fc.constantFrom(undefined, 2))
  .map(([value, indent]) => JSON.stringify(value, undefined, indent))
  .filter((text) => !text.includes("__proto__"));
const otherKey = fc
  .string({ unit: "binary", maxLength: 10 })
  .filter((key) => !["stream_options", "model", "messages", "include_usage", "__proto__"].includes(key));
const streamOptions = fc.oneof(
  fc.constant(undefined),
  fc.constant("null"),
  fc
    .tuple(
      fc.constantFrom(undefined, "null", "false", "true"),
      fc.dictionary(otherKey, jsonText, { maxKeys: 3 }),
      space,
      fc.nat(),
    )
    .map(([value, others, gap, order]) => {
      const members = Object.entries(others).map(([key, text]) => `${gap}${JSON.stringify(key)}${gap}:${text}`);
      if (value) members.splice(order % (members.length + 1), 0, `"include_usage"${gap}:${gap}${value}${gap}`);
      return `{${members.join(",")}${gap}}`;
    }),
);
const readFields = [
  "stream",
  "n",
  "max_tokens",
  "max_completion_tokens",
  "user",
  "session_id",
  "prompt_cache_key",
  "priority",
];
const bodyText = fc
  .tuple(fc.dictionary(otherKey, jsonText, { maxKeys: 5 }), streamOptions, space, fc.infiniteStream(fc.nat()))
  .map(([others, options, gap, order]) => {
    const members = Object.entries(others)
      .filter(([key]) => !readFields.includes(key))
      .map(([key, text]) => `${JSON.stringify(key)}${gap}:${gap}${text}${gap}`);
    const insert = (member: string) => members.splice((order.next().value ?? 0) % (members.length + 1), 0, member);
    insert(`"model"${gap}:${gap}"some/model"${gap}`);
    insert(`${gap}"messages":[{"role":"user","content":"a\\"}{"}]`);
    if (options !== undefined) insert(`${gap}"stream_options":${gap}${options}${gap}`);
    return `${gap}{${members.join(",")}}${gap}`;
  });
const someEdits = fc
  .record({
    model: fc.option(fc.string({ unit: "binary" }), { nil: undefined }),
    includeUsage: fc.constantFrom(true, undefined),
  })
  .map(
    ({ model, includeUsage }): BodyEdits => ({
      ...(model === undefined ? {} : { model }),
      ...(includeUsage ? { includeUsage } : {}),
    }),
  );

test("for any body, editing its bytes is editing what it says, and nothing but the edited members is touched", () => {
  fc.assert(
    fc.property(bodyText, someEdits, (text, edits) => {
      const body = Buffer.from(text);
      const pieces = editBody(body, readRequestView(chat, body, limits), edits);
      const after = Buffer.concat([...pieces]).toString("utf8");
      expect(JSON.parse(after)).toEqual(naive(body.toString("utf8"), edits));
      // Pieces alternate between the body's own bytes and new ones; its own appear in order and are never repeated.
      let consumed = 0;
      for (const piece of pieces) {
        if (piece.buffer !== body.buffer || piece.length === 0) continue;
        const at = piece.byteOffset - body.byteOffset;
        if (at < consumed || at + piece.length > body.length) continue;
        const skipped = body.toString("utf8", consumed, at);
        expect(["", "null", "false", "true", '"some/model"']).toContain(skipped);
        consumed = at + piece.length;
      }
      expect(consumed).toBe(body.length);
    }),
    { numRuns: randomRuns(500) },
  );
});

test.skipIf(captured.length === 0)("captured requests: edited bytes are the naive edit, in the same key order", () => {
  for (const { path, request } of capturedRequests) {
    const endpoint = endpointAt(path);
    const edits: BodyEdits = endpoint.usageInjectable ? { model: "renamed", includeUsage: true } : { model: "renamed" };
    const text = JSON.stringify(request);
    const after = edited(endpoint, text, edits);
    expect(JSON.parse(after)).toEqual(naive(text, edits));
    expect(Object.keys(JSON.parse(after) as object).filter((key) => Object.hasOwn(request ?? {}, key))).toEqual(
      Object.keys(request ?? {}),
    );
  }
});

test("an edit of a completions body", () => {
  expect(edited(completions, '{"prompt":[1,2],"model":"a"}', { model: "b", includeUsage: true })).toBe(
    '{"stream_options":{"include_usage":true},"prompt":[1,2],"model":"b"}',
  );
});

describe("values are set as text", () => {
  test.each([
    ["added", `{${rest}}`, `{"a":9223372036854775807,"b":{"x":null},${rest}}`],
    ["exchanged", `{"a": 1,${rest},"b" :"x"}`, `{"a": 9223372036854775807,${rest},"b" :{"x":null}}`],
    ["one of each", `{${rest},"a":[]}`, `{"b":{"x":null},${rest},"a":9223372036854775807}`],
  ])("%s", (_, before, after) => {
    const set = { a: "9223372036854775807", b: '{"x":null}' };
    expect(edited(generate, before.replace(rest, '"text":"x"'), { set })).toBe(after.replace(rest, '"text":"x"'));
  });

  test("along with the other edits", () => {
    const body = `{"model":"a","stream":true,${rest}}`;
    expect(JSON.parse(edited(chat, body, { model: "b", includeUsage: true, set: { room: "1" } }))).toEqual({
      ...{ model: "b", stream: true, messages: [{}], room: 1, stream_options: { include_usage: true } },
    });
  });

  test("none of them leaves the body alone", () => {
    const body = Buffer.from(`{"model":"a",${rest}}`);
    expect(editBody(body, readRequestView(chat, body, limits), { set: {} })).toEqual([body]);
  });

  test("a key is written as JSON", () => {
    expect(JSON.parse(edited(chat, `{"model":"m",${rest}}`, { set: { 'a"\n': "1" } }))).toMatchObject({ 'a"\n': 1 });
  });
});
