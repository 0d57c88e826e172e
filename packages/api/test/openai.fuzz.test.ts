import { EspalierError, type Random } from "@espalier/core";
import { encodeFrame, opcodes } from "@espalier/core/websocket";
import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  createJsonUsageReader,
  createSseUsageFilter,
  defaultSessionKeyLadder,
  editBody,
  endpoints,
  findSession,
  parseStoredResponsePath,
  RealtimeFrames,
  readAnswerHead,
  readJsonMember,
  readRequestView,
  readResponseId,
  readSessionUpdate,
} from "../src/index.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const json = (value: unknown): Uint8Array => utf8(JSON.stringify(value));
const isRefusal = (thrown: unknown): boolean => thrown instanceof EspalierError && thrown.kind.status === 400;

const text = "Wie geht's? \u{1f600} \\ \" \u0000 end";
const tools = [{ type: "function", function: { name: "f", parameters: { type: "object", properties: {} } } }];
const content = [
  { type: "text", text },
  { type: "image_url", image_url: { url: "data:," } },
];
const bodies: readonly Uint8Array[] = [
  json({
    model: "m",
    messages: [{ role: "user", content: text }],
    stream: true,
    stream_options: { include_usage: false },
  }),
  json({
    model: "m",
    messages: [
      { role: "system", content },
      { role: "assistant", tool_calls: [{ id: "1" }] },
    ],
    tools,
  }),
  json({ model: "m", system: text, max_tokens: 5, messages: [{ role: "user", content }], metadata: { user_id: "u" } }),
  json({ model: "m", prompt: [1, 2, 3], n: 2, priority: -1, user: "u" }),
  json({ model: "m", prompt: [text, text], max_tokens: 3 }),
  json({ model: "m", input: [{ type: "message", role: "user", content }], previous_response_id: "resp_1" }),
  json({ model: "m", input: [[1, 2], [3]], encoding_format: "float" }),
  json({ text, sampling_params: { max_new_tokens: 5 }, session_id: "s" }),
  json({ model: "m", query: text, documents: [text, text] }),
];

/** Cuts bytes into chunks as a socket may. */
function chunksOf(bytes: Uint8Array, random: Random): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = Math.min(bytes.length, at + 1 + random.integer(random.integer(3) === 0 ? 4 : 200));
    chunks.push(Buffer.from(bytes.subarray(at, end)));
    at = end;
  }
  return chunks;
}

const readBody = (bytes: Uint8Array, random: Random): void => {
  const endpoint = endpoints[random.integer(endpoints.length)]!;
  const body = Buffer.from(bytes);
  const before = Buffer.from(body);
  const view = readRequestView(endpoint, body, { maxDepth: 32 });
  findSession(defaultSessionKeyLadder, { "x-session-id": "s" }, view);
  const edits = { model: "other", set: { extra: "1" }, ...(view.canAddUsage && { includeUsage: true as const }) };
  const edited = Buffer.concat([...editBody(body, view, edits)]);
  expect(body.equals(before)).toBe(true);
  if (body.length === 0) return;
  const [was, is] = [JSON.parse(body.toString()), JSON.parse(edited.toString())];
  expect(is).toEqual({ ...was, ...is });
  if (view.canAddUsage) expect(is.stream_options.include_usage).toBe(true);
  expect([is.extra, view.model === undefined || is.model === "other"]).toEqual([1, true]);
};

const sse = (data: unknown): string => `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
const usage = { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12, prompt_tokens_details: { cached_tokens: 4 } };
const streams: readonly Uint8Array[] = [
  utf8(sse({ choices: [{ delta: { content: text } }] }) + sse({ choices: [], usage }) + sse("[DONE]")),
  utf8(
    `: ping\r\n\r\nevent: message_start\r\n${sse({ type: "message_start", message: { usage: { input_tokens: 3 } } })}`,
  ),
  utf8(`${sse({ error: { message: "x", code: 503 } })}data: [DONE]\n\n`),
  utf8(sse({ text, meta_info: { finish_reason: { type: "abort", status_code: 503 } } })),
  utf8(sse({ id: "x", choices: [], usage, timings: { prompt_ms: 1 } })),
  utf8(`event: response.completed\n${sse({ type: "response.completed", response: { id: "resp_1", usage } })}`),
];

/** Without stripping, what goes out is what came in, however it was cut. */
function readStream(bytes: Uint8Array, random: Random): void {
  const strip = random.integer(2) === 0;
  const filter = createSseUsageFilter({ strip });
  const out: Buffer[] = [];
  for (const chunk of chunksOf(bytes, random)) out.push(filter.push(chunk) ?? Buffer.alloc(0));
  out.push(filter.end() ?? Buffer.alloc(0));
  const [sent, came] = [Buffer.concat(out), Buffer.from(bytes)];
  if (strip) expect(sent.length).toBeLessThanOrEqual(came.length);
  else expect(sent.equals(came)).toBe(true);
  filter.usage();
  filter.fault();
  filter.insideEvent();
  readAnswerHead(came, random.integer(2) === 0);
}

const event = (value: unknown): Buffer => encodeFrame(opcodes.text, JSON.stringify(value));
const session = Buffer.concat([
  event({ type: "session.created", id: "sess-1" }),
  encodeFrame(opcodes.ping, "p"),
  event({ type: "transcription.delta", delta: text }),
  event({ type: "transcription.done", text: text.repeat(20), usage }),
  encodeFrame(opcodes.close, Buffer.from([3, 232])),
]);

/** What is read of frames depends on their bytes, not on where they were cut. */
function readFrames(bytes: Uint8Array, random: Random): void {
  const [pieces, whole] = [new RealtimeFrames(), new RealtimeFrames()];
  for (const chunk of chunksOf(bytes, random)) pieces.push(chunk);
  whole.push(Buffer.from(bytes));
  const seen = (frames: RealtimeFrames) => [frames.usage(), frames.tokensSeen, frames.isClosed, frames.isBetweenFrames];
  expect(seen(pieces)).toEqual(seen(whole));
}

const targets: readonly FuzzTarget[] = [
  { name: "frames of the realtime API", seeds: [session], read: readFrames },
  {
    name: "event of a realtime client",
    seeds: [json({ type: "session.update", session: { model: "m" } }), json({ type: "session.update", model: "m" })],
    read: (bytes) => void readSessionUpdate(Buffer.from(bytes))?.withModel("other"),
  },
  { name: "HTTP bodies", seeds: bodies, read: readBody, refuses: isRefusal },
  { name: "SSE stream", seeds: streams, read: readStream },
  {
    name: "answer's usage",
    seeds: [json({ id: "x", choices: [{ text }], usage }), json({ usage: { input_tokens: 3, output_tokens: 4 } })],
    read(bytes, random) {
      const reader = createJsonUsageReader();
      for (const chunk of chunksOf(bytes, random)) reader.push(chunk);
      reader.usage();
    },
  },
  {
    name: "answer's id, member of a body, stored path",
    seeds: [json({ id: "resp_1", kv_transfer_params: { a: [1] } }), utf8("/v1/responses/resp_1/cancel?x=1")],
    read(bytes) {
      readResponseId(Buffer.from(bytes));
      readJsonMember(Buffer.from(bytes), ["kv_transfer_params", "a"]);
      parseStoredResponsePath(Buffer.from(bytes).toString());
    },
  },
];

fuzzInFile(test, "whatever comes is read, or refused as documented", targets);
