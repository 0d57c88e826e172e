import { afterEach, expect, test } from "vitest";
import { chat, eventData, type Json, openPost, post } from "./client.ts";
import { rawEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const cutShort = {
  error: { message: expect.any(String), type: "server_error", param: null, code: "upstream_cut_short" },
};

test.each(["cut-mid-stream", "reset-mid-stream"])("%s: an error frame, no [DONE], and the end", async (kind) => {
  const [bad, other] = await rig.sims(2);
  const config = { policy: "round_robin", resume: { max: 0 } };
  const router = await rig.router({ engines: [bad!.url, other!.url], config });
  for (const sim of [bad, other]) await sim!.fault({ kind, afterTokens: 2, count: 1 });

  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true, max_tokens: 20 }));

  expect(answer.status).toBe(200);
  const events = eventData(answer.text);
  expect(events.length).toBeGreaterThan(2);
  expect(events).not.toContain("[DONE]");
  expect(JSON.parse(events.at(-1)!)).toEqual(cutShort);
  expect(answer.headers["x-espalier-attempts"]).toBe("1");
  await router.untilIdle();
  const page = await router.metrics();
  expect(page.sum("espalier_requests_total", { outcome: "cut" })).toBe(1);
  expect(page.sum("espalier_requests_total", { status: "502" })).toBe(1);
});

test("Anthropic's streams end with an error event of their own shape", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  await sim!.fault({ kind: "cut-mid-stream", afterTokens: 2 });
  const answer = await post(`${router.url}/v1/messages`, chat({ stream: true, max_tokens: 20 }));
  const last = answer.text.trimEnd().split("\n\n").at(-1) ?? "";
  expect(last).toMatch(/^event: error\ndata: /);
  expect(JSON.parse(last.slice(last.indexOf("{")))).toEqual({
    type: "error",
    error: { type: "api_error", message: expect.any(String) },
  });
  expect(answer.text).not.toContain("message_stop");
});

test.each<readonly [string, string, string]>([
  ["between events", 'data: {"a":1}\n\n', 'data: {"a":1}\n\n'],
  ["inside an event", 'data: {"a":1}\n\ndata: {"b"', 'data: {"a":1}\n\ndata: {"b"\n\n'],
  ["before the blank line", 'data: {"a":1}\n', 'data: {"a":1}\n\n'],
])("a stream that was cut %s still ends with a whole frame", async (_, sent, arrived) => {
  const engine = await rawEngine(rig, (socket) => socket.end(streamHead + chunk(sent)));
  const config = { "inject-usage": false, resume: { max: 0 } };
  const router = await rig.router({ engines: [engine.url], config });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  expect(answer.text.startsWith(arrived)).toBe(true);
  const frame = answer.text.slice(arrived.length);
  expect(frame).toMatch(/^data: \{"error":.*\}\n\n$/);
  expect(JSON.parse(frame.slice("data: ".length))).toEqual(cutShort);
});

test("with usage injected, half an event that was held back does not come out", async () => {
  const engine = await rawEngine(rig, (socket) => socket.end(streamHead + chunk('data: {"a":1}\n\ndata: {"b"')));
  const router = await rig.router({ engines: [engine.url] });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  expect(eventData(answer.text).map((data) => Object.keys(JSON.parse(data) as Json))).toEqual([["a"], ["error"]]);
});

test("an engine that falls silent in mid-stream: an error frame when the idle limit is over", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], config: { timeouts: { idle: "100ms" } } });
  await sim!.fault({ kind: "hang-mid-stream", afterTokens: 2 });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true, max_tokens: 20 }));
  expect(JSON.parse(eventData(answer.text).at(-1)!)).toMatchObject({ error: { code: "upstream_timeout" } });
  await router.untilIdle();
  expect((await sim!.state()).active).toEqual([]);
});

test("a whole answer that is cut cannot be repaired: the connection ends before its length", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  for (const kind of ["cut-mid-stream", "reset-mid-stream"]) {
    await sim!.fault({ kind, count: 1 });
    const request = openPost(`${router.url}/v1/chat/completions`, chat());
    expect((await request.head).statusCode).toBe(200);
    await expect(request.body).rejects.toThrow("aborted");
  }
  await router.untilIdle();
  expect((await router.metrics()).sum("espalier_requests_total", { outcome: "cut" })).toBe(2);
});

test("garbage in the chunks of a stream is noticed as such", async () => {
  const engine = await rawEngine(rig, (socket) => socket.write(`${streamHead}${chunk("data: {}\n\n")}ZZ\r\n`));
  const router = await rig.router({ engines: [engine.url] });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  expect(JSON.parse(eventData(answer.text).at(-1)!)).toMatchObject({ error: { code: "upstream_protocol_error" } });
});
