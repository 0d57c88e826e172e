import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createJsonUsageReader, type Usage } from "../src/index.ts";
import { type CapturedReport, captured, cutAt } from "./helpers.ts";

function usageOf(chunks: readonly Buffer[]): Usage | undefined {
  const reader = createJsonUsageReader();
  for (const chunk of chunks) reader.push(chunk);
  return reader.usage();
}

const read = (body: unknown) => usageOf([Buffer.from(typeof body === "string" ? body : JSON.stringify(body))]);
const openai = { prompt_tokens: 9, completion_tokens: 12, prompt_tokens_details: { cached_tokens: 8 } };
const expected: Usage = { promptTokens: 9, completionTokens: 12, cachedTokens: 8 };

describe("the report is found in every dialect", () => {
  test.each<[string, unknown, Usage | undefined]>([
    ["chat", { id: "c", choices: [{ message: { content: "hi" } }], usage: openai }, expected],
    ["usage first", { usage: openai, choices: [] }, expected],
    ["indented", JSON.stringify({ choices: [], usage: openai }, undefined, 2), expected],
    [
      "with spaces as Python writes it",
      '{"choices": [], "usage" : {"prompt_tokens": 9, "completion_tokens": 12}}',
      { ...expected, cachedTokens: undefined },
    ],
    [
      "an embedding, which has no output",
      { data: [{ embedding: [0.1, -2e-9] }], usage: { prompt_tokens: 4, total_tokens: 4 } },
      { promptTokens: 4, completionTokens: 0, cachedTokens: undefined },
    ],
    ["token ids behind it", { choices: [], usage: openai, prompt_token_ids: [1, 2, 3] }, expected],
    [
      "the Responses API",
      {
        id: "r",
        output: [],
        usage: { input_tokens: 9, input_tokens_details: { cached_tokens: 8 }, output_tokens: 12 },
      },
      expected,
    ],
    [
      "Anthropic: cached tokens are counted beside the others",
      { type: "message", content: [], usage: { input_tokens: 1, cache_read_input_tokens: 8, output_tokens: 12 } },
      expected,
    ],
    [
      "SGLang's own API",
      {
        text: "x",
        meta_info: { prompt_tokens: 9, completion_tokens: 12, cached_tokens: 8, finish_reason: { type: "length" } },
      },
      expected,
    ],
    ["no report", { id: "c", choices: [] }, undefined],
    ["null", { choices: [], usage: null }, undefined],
    ["an empty report", { choices: [], usage: {} }, undefined],
    ["a report of another kind", { usage: { prompt_tokens: "9" } }, undefined],
    ["an error", { error: { message: "no" } }, undefined],
    ["an empty body", "", undefined],
    ["no JSON", "<html>usage: {}</html>", undefined],
  ])("%s", (_, body, usage) => {
    expect(read(body)).toEqual(usage);
  });
});

describe("what only looks like the report is not taken for it", () => {
  const fake = '"usage":{"prompt_tokens":1,"completion_tokens":1}';
  test.each<[string, unknown, Usage | undefined]>([
    ["a text before it", { choices: [{ text: `{${fake}}` }], usage: openai }, expected],
    ["a text behind it", { usage: openai, note: `{${fake}}` }, expected],
    ["a text alone", { choices: [{ text: fake }] }, undefined],
    ["a text that ends in the word", { choices: [{ text: 'the "usage' }], usage: openai }, expected],
    ["the word as a value", { choices: [{ token: "usage" }, { token: "meta_info" }], usage: openai }, expected],
    ["the word as a value in front of an object", '{"a":["usage",{"prompt_tokens":1}]}', undefined],
    ["a tool's input before it", `{"content":[{"input":{${fake}}}],"usage":${JSON.stringify(openai)}}`, expected],
    ["an object without token counts behind it", { usage: openai, x: { usage: { cpu: 1 } } }, expected],
    ["a number", '{"usage":5,"meta_info":6}', undefined],
    ["an array", '{"usage":[{"prompt_tokens":1}]}', undefined],
    ["a report that is cut off", `{"choices":[],${fake.slice(0, -1)}`, undefined],
    ["a report that is not valid", '{"usage":{"prompt_tokens":1,,}}', undefined],
  ])("%s", (_, body, usage) => {
    expect(read(body)).toEqual(usage);
  });

  test("brackets and quotes in the report's own texts do not end it", () => {
    const odd = { ...openai, note: '}"}]\\', other: { a: ["}", '\\"'] } };
    expect(read({ usage: odd })).toEqual(expected);
  });
});

test("however a body is cut, the report is the same", () => {
  const value = fc.jsonValue({ maxDepth: 3, stringUnit: "binary" });
  const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 12 });
  fc.assert(
    fc.property(
      value,
      value,
      fc.nat(999),
      fc.nat(999),
      cuts,
      fc.constantFrom(0, 3),
      (before, after, prompt, output, fractions, indent) => {
        const body = { before, usage: { prompt_tokens: prompt, completion_tokens: output, note: before }, after };
        const bytes = Buffer.from(JSON.stringify(body, undefined, indent));
        expect(usageOf(cutAt(bytes, fractions))).toEqual({
          promptTokens: prompt,
          completionTokens: output,
          cachedTokens: undefined,
        });
      },
    ),
    { numRuns: randomRuns(500) },
  );
});

test("byte by byte as well", () => {
  const bytes = Buffer.from(
    JSON.stringify({ choices: [{ text: '"usage":{' }], usage: openai, more: [{ usage: null }] }, undefined, 1),
  );
  expect(usageOf(Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)))).toEqual(expected);
});

test("two megabytes of embedding before the report, and of token ids behind it, do not hide it", () => {
  const numbers = Array.from({ length: 100_000 }, (_, index) => Math.sin(index));
  const bytes = Buffer.from(
    JSON.stringify({ data: [{ embedding: numbers }], usage: openai, prompt_token_ids: numbers }),
  );
  expect(bytes.length).toBeGreaterThan(3_000_000);
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += 65_536) chunks.push(bytes.subarray(at, at + 65_536));
  expect(usageOf(chunks)).toEqual(expected);
});

describe("bounds", () => {
  /** A body whose report takes `size` bytes. */
  const withReport = (size: number): Buffer => {
    const empty = JSON.stringify({ ...openai, note: "" });
    const report = JSON.stringify({ ...openai, note: "x".repeat(size - empty.length) });
    expect(report.length).toBe(size);
    return Buffer.from(`{"text":"","meta_info":${report}}`);
  };

  test("a report of 1 MiB is read, a longer one is passed over", () => {
    expect(usageOf([withReport(1_048_576)])).toEqual(expected);
    expect(usageOf([withReport(1_048_577)])).toBeUndefined();
    expect(usageOf(cutAt(withReport(1_048_576), [0.2, 0.4, 0.9]))).toEqual(expected);
    expect(usageOf(cutAt(withReport(1_048_577), [0.2, 0.4, 0.9]))).toBeUndefined();
  });

  test("a report behind one that was passed over is found", () => {
    const bytes = Buffer.concat([
      withReport(1_048_600).subarray(0, -1),
      Buffer.from(`,"usage":${JSON.stringify(openai)}}`),
    ]);
    expect(usageOf(cutAt(bytes, [0.3, 0.99]))).toEqual(expected);
  });

  test("a key and the space about its colon may take 64 bytes where a chunk ends, not more", () => {
    const spaced = (spaces: number) => Buffer.from(`"usage":${" ".repeat(spaces)}{"prompt_tokens":1}`);
    const cut = (bytes: Buffer, at: number) => [
      Buffer.from("{"),
      bytes.subarray(0, at),
      bytes.subarray(at),
      Buffer.from("}"),
    ];
    expect(usageOf(cut(spaced(56), 64))?.promptTokens).toBe(1);
    expect(usageOf(cut(spaced(57), 65))).toBeUndefined();
  });
});

describe.skipIf(captured.length === 0)("captured answers", () => {
  const answers = captured.filter(
    ({ response, path }) => typeof response === "object" && path !== "/reset_prefix_cache",
  );

  test("the report of each is what JSON.parse finds in it, however it is cut", () => {
    let found = 0;
    for (const { response } of answers) {
      const { usage, meta_info: info } = response as { usage?: CapturedReport; meta_info?: CapturedReport };
      const numbers = usage ?? info;
      const bytes = Buffer.from(JSON.stringify(response));
      const report = usageOf([bytes]);
      expect(report).toEqual(
        numbers && {
          promptTokens: numbers.prompt_tokens,
          completionTokens: numbers.completion_tokens,
          cachedTokens: numbers.cached_tokens ?? numbers.prompt_tokens_details?.cached_tokens,
        },
      );
      if (report) found++;
      expect(usageOf(cutAt(bytes, [0.3, 0.8, 0.9, 0.95]))).toEqual(report);
    }
    expect(found).toBeGreaterThan(200);
  });
});
