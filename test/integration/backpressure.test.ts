import type { ServerResponse } from "node:http";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, openPost, post, rawConnection, rawPost } from "./client.ts";
import { type HttpEngine, httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const mebibyte = 1024 * 1024;
const totalBytes = 48 * mebibyte;
/** What the kernel's buffers on both sides, and the streams' own, may hold; far below the whole. */
const heldBytes = 16 * mebibyte;
const event = Buffer.from(`data: ${"x".repeat(64 * 1024 - 8)}\n\n`);

/** An engine that streams 48 MiB as fast as it is read, and how far it is. */
async function bigEngine(): Promise<{ engine: HttpEngine; sent: () => number }> {
  let sent = 0;
  const stream = (response: ServerResponse): void => {
    while (sent < totalBytes) {
      sent += event.length;
      if (!response.write(event)) {
        response.once("drain", () => stream(response));
        return;
      }
    }
    response.end("data: [DONE]\n\n");
  };
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    stream(response);
  });
  return { engine, sent: () => sent };
}

/** Waits until a number that grows has not changed over some looks at it. */
async function untilSteady(read: () => number): Promise<number> {
  await waitFor(() => read() > 0, { what: "a beginning", deadlineMs: 10_000 });
  let last = -1;
  let looks = 0;
  await waitFor(
    () => {
      looks = read() === last ? looks + 1 : 0;
      last = read();
      return looks >= 20;
    },
    { what: "steady number", deadlineMs: 10_000 },
  );
  return last;
}

const bufferedBytes = (): number => process.memoryUsage().arrayBuffers;

test.each([true, false])("a client that does not read holds the engine back (usage injected: %s)", async (inject) => {
  const { engine, sent } = await bigEngine();
  // What is kept to resume a stream has a bound of its own.
  const router = await rig.router({ engines: [engine.url], config: { "inject-usage": inject, resume: { max: 0 } } });
  const before = bufferedBytes();
  const connection = await rawConnection(router.port);
  connection.socket.removeAllListeners("data");
  connection.socket.pause();
  connection.write(rawPost("/v1/chat/completions", JSON.stringify(chat({ stream: true })), ["connection: close"]));

  const held = await untilSteady(sent);

  expect(held).toBeGreaterThan(event.length);
  expect(held).toBeLessThan(heldBytes);
  expect(bufferedBytes() - before).toBeLessThan(heldBytes);
  expect((await post(`${router.url}/tokenize`, "{")).status).toBe(400);

  let events = 0;
  let tail = "";
  connection.socket.on("data", (chunk: Buffer) => {
    const text = tail + chunk.toString("latin1");
    events += text.split("data: x").length - 1;
    tail = text.slice(-6);
  });
  connection.socket.resume();
  await waitFor(() => connection.socket.readableEnded, { what: "end of the stream", deadlineMs: 20_000 });
  expect(events).toBe(totalBytes / event.length);
  await router.untilIdle();
});

test("a slow client does not slow the others down", async () => {
  const { engine, sent } = await bigEngine();
  const [sim] = await rig.sims(1, { models: ["quick"] });
  const router = await rig.router({ engines: [engine.url, sim!.url] });
  const slow = await rawConnection(router.port);
  slow.socket.pause();
  slow.write(rawPost("/v1/chat/completions", JSON.stringify(chat({ stream: true }))));
  await untilSteady(sent);

  const quick = Array.from({ length: 20 }, () =>
    post(`${router.url}/v1/chat/completions`, chat({ model: "quick", stream: true })),
  );
  for (const answer of await Promise.all(quick)) expect(answer.text).toMatch(/\[DONE\]\n\n$/);
  slow.socket.destroy();
  await router.untilIdle();
});

test("an engine that pauses in mid-stream is waited for", async () => {
  let resume = (): void => {};
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
    resume = () => response.end("data: 2\n\n");
  });
  const router = await rig.router({ engines: [engine.url] });
  const stream = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  await waitFor(() => stream.received() === "data: 1\n\n", { what: "first event" });
  expect((await router.metrics()).sum("espalier_engine_requests_in_flight")).toBe(1);
  resume();
  expect((await stream.body).toString()).toBe("data: 1\n\ndata: 2\n\n");
});

test("a big body and a big answer pass whole", async () => {
  const engine = await httpEngine(rig, ({ body, response }) => {
    response.writeHead(200, { "content-type": "application/json", "content-length": body.length }).end(body);
  });
  const router = await rig.router({ engines: [engine.url] });
  const body = JSON.stringify(chat({ pad: "é".repeat(8 * mebibyte) }));
  const answer = await post(`${router.url}/v1/chat/completions`, body);
  expect(answer.status).toBe(200);
  expect(answer.body.equals(Buffer.from(body))).toBe(true);
});

test("a body over the standing limit of 32 MiB is refused while it is being sent", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const before = bufferedBytes();
  const refused = call(`${router.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", "content-length": String(33 * mebibyte), connection: "close" },
    body: JSON.stringify(chat()).slice(0, -1),
  });
  expect((await refused).status).toBe(413);
  expect(bufferedBytes() - before).toBeLessThan(heldBytes);
});
