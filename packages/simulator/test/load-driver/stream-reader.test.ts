import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createAnswerReader } from "../../src/load-driver/index.ts";

const event = (value: unknown): string => `data: ${typeof value === "string" ? value : JSON.stringify(value)}\n\n`;
const delta = (content: string): string => event({ choices: [{ index: 0, delta: { content } }] });

const stream =
  event({ choices: [{ index: 0, delta: { role: "assistant", content: "" } }] }) +
  delta("Hé") +
  delta(' "usage" ') +
  delta("[DONE]") +
  event({
    choices: [],
    usage: { prompt_tokens: 40, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 32 } },
  }) +
  event("[DONE]");

test("a stream read in any pieces gives the same reading", () => {
  const random = createSeededRandom(5);
  for (let round = 0; round < 200; round++) {
    const reader = createAnswerReader(true);
    for (let from = 0; from < stream.length; ) {
      const size = 1 + random.integer(40);
      reader.push(stream.slice(from, from + size));
      from += size;
    }
    expect(reader.end()).toEqual({
      sawContent: true,
      sawDone: true,
      promptTokens: 40,
      completionTokens: 3,
      cachedTokens: 32,
      error: undefined,
      text: "",
    });
  }
});

test("the text is kept when it is asked for", () => {
  const reader = createAnswerReader(true, true);
  reader.push(stream);
  expect(reader.end().text).toBe('Hé "usage" [DONE]');
});

test("the role chunk is not content; the first delta with text is", () => {
  const reader = createAnswerReader(true);
  reader.push(event({ choices: [{ delta: { role: "assistant", content: "" } }] }));
  expect(reader.reading.sawContent).toBe(false);
  reader.push(delta("a"));
  expect(reader.reading.sawContent).toBe(true);
});

test("a stream without its end is not done, and an error event is an error", () => {
  const reader = createAnswerReader(true);
  reader.push(delta("a"));
  reader.push(event({ error: { message: "the engine stopped", type: "server_error" } }));
  expect(reader.end()).toMatchObject({ sawDone: false, error: "the engine stopped" });
});

test("a plain body is read at its end", () => {
  const reader = createAnswerReader(false);
  reader.push('{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":5,');
  expect(reader.reading.sawContent).toBe(false);
  reader.push('"completion_tokens":1}}');
  expect(reader.end()).toMatchObject({ sawContent: true, sawDone: true, promptTokens: 5, completionTokens: 1 });
});

test("comments and other fields of the stream are ignored", () => {
  const reader = createAnswerReader(true);
  reader.push(": ping\n\nevent: x\n\n");
  expect(reader.end()).toMatchObject({ sawContent: false, sawDone: false, error: undefined });
});
