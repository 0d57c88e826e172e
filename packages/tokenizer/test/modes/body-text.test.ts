import { type JsonBody, scanBody } from "@espalier/core";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { bodyText, canonicalChat } from "../../src/modes/canonical-chat.ts";
import { createPromptHasher } from "../../src/prompt/prompt-blocks.ts";
import { promptSource } from "../../src/prompt-request.ts";

const hasher = createPromptHasher();

function bodyOf(text: string): JsonBody {
  const body = scanBody(Buffer.from(text), 64);
  if (typeof body === "string") throw new Error(body);
  return body;
}

/** The same from the parsed fields. */
function expected(endpoint: string, body: JsonBody): string | undefined {
  const source = promptSource({ endpoint, fields: body.fields });
  if (source.kind === "text") return source.text;
  return source.kind === "chat" ? canonicalChat(body.fields, source.messages, hasher) : undefined;
}

function expectSame(endpoint: string, text: string): void {
  const body = bodyOf(text);
  const bytes = bodyText(endpoint, body, hasher);
  const want = expected(endpoint, body);
  expect(bytes && Buffer.from(bytes).equals(Buffer.from(want ?? "", "utf8"))).toBe(
    want === undefined ? undefined : true,
  );
}

const word = fc.string({ unit: "binary", maxLength: 40 });
const part = fc.oneof(
  word,
  fc.record({ type: fc.constantFrom("text", "input_text", "image_url"), text: word }),
  fc.record({ type: fc.constant("image_url"), image_url: fc.record({ url: fc.string({ maxLength: 400 }) }) }),
);
const content = fc.oneof(word, fc.array(part, { maxLength: 3 }), fc.constant(null));
const message = fc.oneof(
  fc.record({ role: word, content: word }),
  fc.record({ content: word, role: word }),
  fc.record(
    {
      role: fc.oneof(word, fc.constant(null)),
      content,
      tool_calls: fc.array(fc.record({ id: word, function: fc.record({ name: word, arguments: word }) }), {
        maxLength: 2,
      }),
      name: word,
      "1": fc.integer(),
    },
    { requiredKeys: [] },
  ),
);
const chat = fc.record(
  {
    messages: fc.array(message, { maxLength: 6 }),
    system: fc.oneof(word, fc.array(part, { maxLength: 2 })),
    tools: fc.array(fc.record({ type: word, function: fc.jsonValue({ maxDepth: 2 }) }), { maxLength: 2 }),
    documents: fc.oneof(fc.constant(null), fc.array(word, { maxLength: 2 })),
    instructions: word,
  },
  { requiredKeys: ["messages"] },
);

describe("the text of a body is that of its fields", () => {
  test.each(["chat", "messages"])("for %s with messages of all kinds", (endpoint) => {
    fc.assert(
      fc.property(chat, (fields) => {
        const text = JSON.stringify(fields);
        fc.pre(!text.includes("__proto__"));
        expectSame(endpoint, text);
      }),
      { numRuns: randomRuns(500) },
    );
  });

  test("for responses, of a text and of items", () => {
    fc.assert(
      fc.property(fc.oneof(word, fc.array(fc.oneof(message, word), { maxLength: 4 })), word, (input, instructions) => {
        const text = JSON.stringify({ input, instructions });
        fc.pre(!text.includes("__proto__"));
        expectSame("responses", text);
      }),
    );
  });

  test("where a key of a message stands twice, or is written with escapes", () => {
    expectSame(
      "chat",
      '{"messages":[{"role":"user","content":"a","content":"b"},{"role":"a","role":"b","content":"c"}]}',
    );
    expectSame("chat", '{"messages":[{"r\\u006fle":"user","c\\u006fntent":"\\ud800a\\n"}]}');
    expectSame("chat", '{"messages":["text",7,null,[],{},{"role":"user"},{"content":"x"},{"role":1,"content":"y"}]}');
  });

  test("for prompts that are one text", () => {
    expectSame("completions", '{"prompt":"tell me \\"more\\"\\u2028"}');
    expectSame("generate", '{"text":"tell me","input_ids":null}');
  });
});

test.each([
  ["completions", '{"prompt":["a","b"]}'],
  ["completions", '{"prompt":[1,2]}'],
  ["completions", "{}"],
  ["generate", '{"text":"a","input_ids":[1]}'],
  ["chat", '{"messages":"a"}'],
  ["chat", '{"messages":7}'],
  ["responses", '{"input":7}'],
  ["chat", "{}"],
  ["embeddings", '{"input":"a"}'],
])("%s with %s has no text in one piece", (endpoint, text) => {
  expect(bodyText(endpoint, bodyOf(text), hasher)).toBeUndefined();
});
