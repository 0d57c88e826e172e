import { expect, test } from "vitest";
import { AnswerEndReader } from "../src/answer/answer-end.ts";
import { createSseUsageFilter } from "../src/index.ts";

/** The end of an answer in one piece, whatever its chunks. */
function bodyEnd(text: string, chunkBytes = text.length): string | undefined {
  const reader = new AnswerEndReader();
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += chunkBytes) reader.push(bytes.subarray(at, at + chunkBytes));
  return reader.answerEnd();
}

function streamEnd(...events: readonly string[]): string | undefined {
  const filter = createSseUsageFilter({ strip: false });
  for (const event of events) filter.push(Buffer.from(`${event}\n\n`));
  filter.end();
  return filter.answerEnd();
}

const chatOf = (reason: string | null): string =>
  JSON.stringify({
    choices: [
      {
        message: { content: 'a "finish_reason":"length" b', tool_calls: [] },
        finish_reason: reason,
        stop_reason: null,
      },
    ],
    usage: { prompt_tokens: 1, completion_tokens: 1 },
  });

test.each<[string, string | undefined]>([
  [chatOf("stop"), "stop"],
  [chatOf("tool_calls"), "tool_calls"],
  [chatOf("length"), "length"],
  [chatOf("content_filter"), undefined],
  [chatOf(null), undefined],
  ['{"content":[],"stop_reason": "tool_use","usage":{}}', "tool_calls"],
  ['{"content":[],"stop_reason":"end_turn"}', "stop"],
  ['{"content":[],"stop_reason":"max_tokens"}', "length"],
  ['{"text":"a","meta_info":{"finish_reason":{"type":"length","length":3}}}', "length"],
  [
    '{"object":"response","status":"completed","output":[{"type":"message","status":"completed"}],"tools":[{"type":"function"}]}',
    "stop",
  ],
  ['{"object":"response","status":"completed","output":[{"type":"function_call","name":"f"}]}', "tool_calls"],
  ['{"object":"response","status":"incomplete","output":[]}', "length"],
  ["[0.1,0.2]", undefined],
  ["", undefined],
])("%s ends with %s, in any chunks", (text, end) => {
  for (const chunkBytes of [text.length + 1, 7, 1]) expect(bodyEnd(text, chunkBytes)).toBe(end);
});

test.each<[string, readonly string[], string | undefined]>([
  [
    "a chat",
    [
      'data: {"choices":[{"delta":{"content":"a"}}]}',
      'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}',
      "data: [DONE]",
    ],
    "tool_calls",
  ],
  [
    "a chat with usage",
    [
      'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}',
      'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}',
      "data: [DONE]",
    ],
    "stop",
  ],
  [
    "a message",
    [
      'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":3}}',
      'event: message_stop\ndata: {"type":"message_stop"}',
    ],
    "tool_calls",
  ],
  [
    "a response",
    [
      'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call"}],"usage":{"input_tokens":1,"output_tokens":2}}}',
    ],
    "tool_calls",
  ],
  ["a cut chat", ['data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}'], undefined],
])("the end of %s is in its last events", (_, events, end) => {
  expect(streamEnd(...events)).toBe(end);
});

test("one byte more than is kept: nothing is said", () => {
  const reason = '{"stop_reason":"end_turn"}';
  expect(bodyEnd(reason.padStart(1_048_576), 65_536)).toBe("stop");
  expect(bodyEnd(reason.padStart(1_048_577), 65_536)).toBeUndefined();
});
