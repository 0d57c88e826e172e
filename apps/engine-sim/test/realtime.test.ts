import { once } from "node:events";
import { connect } from "node:net";
import { encodeFrame, FrameScanner, opcodes } from "@espalier/core/websocket";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { startEngineSim } from "../src/index.ts";

const stops: (() => unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** A connection whose handshake is complete. */
async function open(options: Parameters<typeof startEngineSim>[0] = {}, headers = "") {
  const { engines, stop } = await startEngineSim({ speed: 1_000, models: ["tiny"], ...options });
  stops.push(stop);
  const socket = connect(Number(new URL(engines[0]!.url).port), "127.0.0.1");
  stops.push(() => socket.destroy());
  const events: Record<string, unknown>[] = [];
  const scanner = new FrameScanner(65_536, (_, payload) => events.push(JSON.parse(String(payload))));
  let head = "";
  socket.on("data", (chunk) => {
    if (head.includes("\r\n\r\n")) scanner.push(chunk);
    else {
      const [first = "", rest] = chunk.toString("latin1").split("\r\n\r\n");
      head += rest === undefined ? first : `${first}\r\n\r\n`;
      if (rest) scanner.push(Buffer.from(rest, "latin1"));
    }
  });
  await once(socket, "connect");
  const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  socket.write(`GET /v1/realtime HTTP/1.1\r\nHost: x\r\n${upgrade}Sec-WebSocket-Version: 13\r\n${headers}\r\n`);
  await waitFor(() => head.includes("\r\n\r\n"), { what: "head" });
  return {
    events,
    status: Number(head.split(" ")[1]),
    send: (text: string) => socket.write(encodeFrame(opcodes.text, text, true)),
    until: (count: number) => waitFor(() => events.length >= count, { what: `${count} events` }),
  };
}

test("errors are vLLM's", async () => {
  const { events, send, until } = await open();
  for (const text of [
    "{",
    '{"type":"response.create"}',
    '{"type":"input_audio_buffer.commit"}',
    '{"type":"session.update"}',
    '{"type":"session.update","model":"other"}',
    '{"type":"input_audio_buffer.append","audio":""}',
  ]) {
    send(text);
  }
  await until(7);
  expect(events[0]).toMatchObject({ type: "session.created", id: expect.stringMatching(/^sess-/) });
  expect(events.slice(1).map(({ type, code }) => `${type} ${code}`)).toEqual([
    "error invalid_json",
    "error unknown_event",
    "error model_not_validated",
    "error invalid_event",
    "error model_not_found",
    "error invalid_audio",
  ]);
});

test("two utterances of one session; a message over 16 MiB is ignored", async () => {
  const { events, send, until } = await open();
  send(`{"type":"session.update","model":"${"x".repeat(16 * 1024 * 1024)}"}`);
  send('{"type":"session.update","model":"tiny"}');
  for (let utterance = 0; utterance < 2; utterance++) {
    send('{"type":"input_audio_buffer.commit"}');
    for (const bytes of [2_560, 2]) {
      send(JSON.stringify({ type: "input_audio_buffer.append", audio: Buffer.alloc(bytes).toString("base64") }));
    }
    send('{"type":"input_audio_buffer.commit","final":true}');
    await until(1 + 3 * (utterance + 1));
  }
  const one = ["transcription.delta", "transcription.delta", "transcription.done"];
  expect(events.map(({ type }) => type)).toEqual(["session.created", ...one, ...one]);
  expect(events[3]).toMatchObject({ usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } });
});

test("the key and faults apply, and only vLLM has the path", async () => {
  expect((await open({ apiKey: "secret" })).status).toBe(401);
  expect((await open({ apiKey: "secret" }, "Authorization: Bearer secret\r\n")).status).toBe(101);
  expect((await open({ parameters: { flavour: "sglang" } })).status).toBe(404);
});
