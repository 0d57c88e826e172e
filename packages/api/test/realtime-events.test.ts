import { encodeFrame, opcodes } from "@espalier/core/websocket";
import { expect, test } from "vitest";
import { RealtimeFrames, readSessionUpdate } from "../src/index.ts";

const frame = (event: unknown): Buffer => encodeFrame(opcodes.text, JSON.stringify(event));
const done = (text: string) => ({
  type: "transcription.done",
  text,
  usage: { prompt_tokens: 5, total_tokens: 8, completion_tokens: 3 },
});

test("usage is the sum over utterances, and each delta a token", () => {
  const frames = new RealtimeFrames();
  frames.push(frame({ type: "session.created", id: "sess-1", created: 1 }));
  for (let utterance = 0; utterance < 2; utterance++) {
    for (const delta of ["a", "b", "c"]) frames.push(frame({ type: "transcription.delta", delta }));
    frames.push(frame(done("abc")));
  }
  expect([frames.tokensSeen, frames.usage()]).toEqual([
    6,
    { promptTokens: 10, completionTokens: 6, cachedTokens: undefined },
  ]);
});

test("an event of more than 65,536 bytes passes unread; the next one counts", () => {
  const frames = new RealtimeFrames();
  frames.push(frame(done("x".repeat(65_536))));
  expect([frames.usage(), frames.isBetweenFrames]).toEqual([undefined, true]);
  frames.push(frame(done("")));
  expect(frames.usage()).toMatchObject({ promptTokens: 5 });
});

test("a session's update names its model as vLLM's clients do, or as OpenAI's", () => {
  const read = (event: unknown) => readSessionUpdate(Buffer.from(JSON.stringify(event)));
  const own = read({ type: "session.update", model: "a", x: 1 });
  expect([own?.model, own?.withModel("b")]).toEqual(["a", '{"type":"session.update","model":"b","x":1}']);
  const inside = read({ type: "session.update", session: { model: "a" } });
  expect([inside?.model, inside?.withModel("b")]).toEqual(["a", '{"type":"session.update","session":{"model":"b"}}']);
  expect(read({ type: "session.update" })?.model).toBeUndefined();
  expect(read({ type: "input_audio_buffer.append" })).toBeUndefined();
  expect(readSessionUpdate(Buffer.from("{"))).toBeUndefined();
});
