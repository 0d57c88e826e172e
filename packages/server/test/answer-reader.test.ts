import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { AnswerReader } from "../src/request/answer-reader.ts";

type ReadRequest = ConstructorParameters<typeof AnswerReader>[1];
const chat: ReadRequest = { method: "POST", endpointId: "chat", storesResponse: false };
const token = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n';

function read(contentType: string, request: ReadRequest = chat) {
  const { clock, advance } = createVirtualTime();
  const heard: (string | number)[] = [];
  const reader = new AnswerReader(clock, request, false, {
    contentBegun: () => void heard.push("content"),
    progress: (tokens) => void heard.push(tokens),
  });
  const filter = reader.filter(200, contentType);
  const push = (text: string): void => {
    advance(10);
    filter?.push(Buffer.from(text));
  };
  return { reader, heard, push, advance, startMs: clock.nowMs() };
}

test("a stream's first byte is that of its content: comments and events that only open it set no time", () => {
  const { reader, heard, push, startMs } = read("text/event-stream");
  reader.firstByte();
  push(": queued\n\n");
  push('data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n');
  expect([reader.awaitsContent, reader.firstByteMs, heard]).toEqual([true, Number.NaN, []]);
  push(token);
  push(token + token);
  expect([reader.awaitsContent, reader.firstByteMs - startMs]).toEqual([false, 30]);
  expect(heard[0]).toBe("content");
  expect(heard.filter((each) => each === "content")).toHaveLength(1);
  expect(reader.outputTokens).toBe(heard.slice(1).reduce<number>((sum, each) => sum + Number(each), 0));
});

test.each(["application/json", "application/octet-stream"])("an answer of %s begins with its first byte", (type) => {
  const { reader, heard, advance, startMs } = read(type);
  advance(7);
  reader.firstByte();
  expect([reader.awaitsContent, reader.firstByteMs - startMs, heard]).toEqual([false, 7, ["content"]]);
});

test("an error in place of an answer is a fault and no content, until another attempt is made", () => {
  const { reader, heard } = read("application/json");
  const error = Buffer.from('{"error":{"code":503,"message":"busy"}}');
  expect(reader.judge(error, true)).toMatchObject({ kind: "error", status: 503 });
  reader.firstByte();
  expect([reader.fault()?.status, heard]).toEqual([503, []]);
  reader.reset();
  reader.firstByte();
  expect([reader.fault(), heard]).toEqual([undefined, ["content"]]);
});

test("nobody knows what an answer of a path that is only forwarded should be", () => {
  const { reader } = read("application/json", { ...chat, endpointId: "forwarded" });
  expect(reader.judge(Buffer.from('{"error":{"code":503}}'), true)).toBe("pass");
});

test("how an answer ends is read for requests of programs only", () => {
  const step = { sent: () => {}, ended: () => {} };
  const answer = '{"choices":[{"finish_reason":"tool_calls"}]}';
  for (const [type, text] of [
    ["application/json", answer],
    ["text/event-stream", `data: ${answer}\n\n`],
  ] as const) {
    const ends = [chat, { ...chat, step }].map((request) => {
      const { reader, push } = read(type, request);
      push(text);
      return reader.answerEnd();
    });
    expect(ends).toEqual([undefined, "tool_calls"]);
  }
});
