import type { Socket } from "node:net";
import { createSeededRandom, type Random } from "@espalier/core";
import { type Engine, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { closed, deadUrl, rawEngine } from "./engines.ts";
import { createRig, type Rig, rawClient, send } from "./rig.ts";

const events = Array.from({ length: 20 }, (_, i) => `data: ${i} ${"x".repeat(i * 37)}\n\n`);
const whole = `${events.join("")}data: [DONE]\n\n`;
const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

/** An engine that draws what happens to each request: the answer in random pieces, or one of many faults. */
function faultyEngine(random: Random): Promise<Engine> {
  return rawEngine((socket) => {
    const fault = random.integer(10);
    const chunked = random.integer(2) === 0;
    const framing = chunked ? "transfer-encoding: chunked\r\n" : "connection: close\r\n";
    const encode = (text: string) => (chunked ? `${text.length.toString(16)}\r\n${text}\r\n` : text);
    const full = `${head}${framing}\r\n${encode(whole)}${chunked ? "0\r\n\r\n" : ""}`;
    const begun = `${head}transfer-encoding: chunked\r\n\r\n`;
    if (fault === 0) socket.resetAndDestroy();
    else if (fault === 1) socket.end("HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbusy");
    else if (fault === 2) socket.end("who are you?\r\n");
    else if (fault === 3) socket.end(begun);
    else if (fault === 4)
      socket.end(`${begun}${whole.length.toString(16)}\r\n${whole.slice(0, random.integer(whole.length))}`);
    else writeInPieces(socket, full, random, !chunked);
  });
}

function writeInPieces(socket: Socket, text: string, random: Random, close: boolean): void {
  let at = 0;
  const step = (): void => {
    const size = 1 + random.integer(2_000);
    socket.write(text.slice(at, at + size));
    at += size;
    if (at < text.length) setImmediate(step);
    else if (close) socket.end();
  };
  step();
}

/** Every client sees one of four things, and never a mixture. */
function kindOfAnswer({ status, body, complete }: Awaited<ReturnType<typeof send>>): string {
  const text = body.toString();
  if (status !== 200) {
    const isError = text === "busy" || "error" in JSON.parse(text);
    return isError && complete ? "refused" : `odd status ${status}`;
  }
  if (text === whole && complete) return "whole";
  const frameAt = text.lastIndexOf('data: {"error"');
  const passed = text.slice(0, frameAt).replace(/\n+$/, "");
  const isCut = frameAt > 0 && complete && whole.startsWith(passed) && text.endsWith("\n\n");
  return isCut ? "cut with a frame" : `odd body ${text.slice(-100)}`;
}

async function idle(rig: Rig): Promise<void> {
  await waitFor(() => rig.proxy.activeStreams() === 0, { what: "the end of every exchange" });
}

test.each([1, 2, 3])("among faulty engines every request ends in one of the promised ways (seed %i)", async (seed) => {
  const random = createSeededRandom(seed);
  const engines = [await faultyEngine(random), await faultyEngine(random), await faultyEngine(random)];
  const rig = await createRig({
    engines: [await deadUrl(), ...engines.map(({ url }) => url)],
    options: { maxConnectionsPerEngine: 5 },
  });
  const kinds: Record<string, number> = {};
  const worker = async (): Promise<void> => {
    for (let i = 0; i < 20; i++) {
      const kind = kindOfAnswer(await send(rig.port, { body: "b".repeat(random.integer(5_000)) }));
      kinds[kind] = (kinds[kind] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: 10 }, worker));
  await idle(rig);
  expect(Object.keys(kinds).filter((kind) => kind.startsWith("odd"))).toEqual([]);
  expect(kinds.whole).toBeGreaterThan(100);
  expect(kinds["cut with a frame"]).toBeGreaterThan(0);
  expect(rig.outcomes).toHaveLength(200);
  for (const outcome of rig.outcomes) {
    if (outcome.kind === "failed")
      expect(new Set(outcome.failures.map((f) => f.upstream.key)).size).toBe(outcome.failures.length);
  }
});

test("clients that leave at random moments leave nothing behind", async () => {
  const random = createSeededRandom(11);
  const engine = await faultyEngine(random);
  const rig = await createRig({ engines: [engine.url], options: { maxConnectionsPerEngine: 4 } });
  for (let round = 0; round < 20; round++) {
    const clients = Array.from({ length: 10 }, () =>
      rawClient(rig.port, "POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"),
    );
    for (const { socket } of clients) {
      for (let i = random.integer(12); i > 0; i--) await new Promise((resolve) => setImmediate(resolve));
      if (random.integer(2) === 0) socket.destroy();
      else socket.end();
    }
    await Promise.all(clients.map(({ socket }) => closed(socket)));
  }
  await idle(rig);
  await rig.proxy.stop();
  await waitFor(() => engine.openSockets() === 0, { what: "the end of every connection" });
});
