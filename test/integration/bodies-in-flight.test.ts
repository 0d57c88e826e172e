import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, errorOf, openPost, post, rawConnection } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const bytes = async (router: RunningRouter): Promise<number> =>
  (await router.metrics()).sum("espalier_request_body_bytes");

/** A router that takes 10,000 bytes at a time, before an engine that answers when it is told to. */
async function setUp({ streams = false } = {}) {
  const held: (() => void)[] = [];
  const engine = await httpEngine(rig, ({ response }) => {
    held.push(() => {
      if (streams) response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
      else response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });
  const config = { limits: { "max-body-bytes-in-flight": 10_000, "max-body-bytes": 50_000 } };
  const router = await rig.router({ engines: [engine.url], config });
  return { router, engine, held, url: `${router.url}/v1/chat/completions` };
}

const ofSize = (size: number): string => JSON.stringify(chat({ filler: "" })).replace('""', `"${"x".repeat(size)}"`);

test("bodies past the bound are refused before they are read, and taken again when those in flight have been answered", async () => {
  const { router, engine, held, url } = await setUp();
  const first = openPost(url, ofSize(6_000));
  await waitFor(() => engine.requests.length === 1, { what: "request at the engine" });
  const refused = await post(url, ofSize(6_000));
  expect([refused.status, errorOf(refused).code, refused.headers["retry-after"]]).toEqual([429, "overloaded", "1"]);
  const small = openPost(url, ofSize(2_000));
  await waitFor(() => engine.requests.length === 2, { what: "small request at the engine" });
  await waitFor(async () => (await bytes(router)) > 8_000, { what: "bytes of both" });

  for (const answer of held.splice(0)) answer();
  await Promise.all([first.body, small.body]);
  await router.untilIdle();
  await waitFor(async () => (await bytes(router)) === 0, { what: "no bytes" });
  const again = openPost(url, ofSize(6_000));
  await waitFor(() => held.length === 1, { what: "request at the engine again" });
  held[0]!();
  expect((await again.head).statusCode).toBe(200);
});

test("one that is larger than the bound has its turn when it is alone; one that is too long altogether is told so", async () => {
  const { engine, held, url } = await setUp();
  const large = openPost(url, ofSize(20_000));
  await waitFor(() => engine.requests.length === 1, { what: "request at the engine" });
  expect((await post(url, ofSize(10))).status).toBe(429);
  expect((await post(url, ofSize(60_000))).status).toBe(413);
  held[0]!();
  expect((await large.head).statusCode).toBe(200);
});

test("one of the greatest length that is taken at all counts like any other", async () => {
  const { router, engine, held, url } = await setUp();
  const small = openPost(url, ofSize(10));
  await waitFor(() => engine.requests.length === 1, { what: "request at the engine" });
  expect((await post(url, ofSize(50_000 - ofSize(0).length))).status).toBe(429);
  held[0]!();
  await small.body;
  await router.untilIdle();
  const alone = openPost(url, ofSize(50_000 - ofSize(0).length));
  await waitFor(() => held.length === 2, { what: "request at the engine" });
  held[1]!();
  expect((await alone.head).statusCode).toBe(200);
});

test("one that declares no length may grow over the bound while it is alone", async () => {
  const { engine, held, router } = await setUp();
  const body = Buffer.from(ofSize(20_000));
  const client = await rawConnection(router.port);
  client.write(
    "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
  );
  for (let at = 0; at < body.length; at += 6_000) {
    const piece = body.subarray(at, at + 6_000);
    client.write(`${piece.length.toString(16)}\r\n${piece}\r\n`);
    const counted = Math.min(body.length, at + 6_000);
    await waitFor(async () => (await bytes(router)) === counted, { what: "the piece" });
  }
  client.write("0\r\n\r\n");
  await waitFor(() => engine.requests.length === 1, { what: "request at the engine" });
  held[0]!();
  expect(await client.until(/\r\n\r\n/)).toMatch(/^HTTP\/1\.1 200 /);
});

test("bodies that declare no length count as they come, and go with their connection", async () => {
  const { router, engine, held, url } = await setUp();
  const head = "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n";
  const chunk = `1000\r\n${"x".repeat(0x1000)}\r\n`;
  const first = await rawConnection(router.port);
  first.write(`${head}transfer-encoding: chunked\r\n\r\n${chunk}`);
  const second = await rawConnection(router.port);
  second.write(`${head}transfer-encoding: chunked\r\n\r\n${chunk}`);
  await waitFor(async () => (await bytes(router)) === 0x2000, { what: "both pieces" });
  second.write(chunk);
  expect(await second.until(/\r\n\r\n\{[\s\S]+\}/)).toMatch(/^HTTP\/1\.1 429 [\s\S]*connection: close/i);

  first.socket.destroy();
  second.socket.destroy();
  await waitFor(async () => (await bytes(router)) === 0, { what: "no bytes" });
  const after = openPost(url, ofSize(6_000));
  await waitFor(() => engine.requests.length === 1, { what: "request at the engine" });
  held[0]!();
  expect((await after.head).statusCode).toBe(200);
});

// A body was held, and counted, until its answer had ended, though nothing is sent again once that has begun: a few long
// streams with large prompts had further requests refused for minutes.
test("the room of a body is free as soon as its answer has begun, while the stream goes on", async () => {
  const { router, engine, held, url } = await setUp({ streams: true });
  const streams = [];
  for (let at = 1; at <= 4; at++) {
    const stream = openPost(url, ofSize(6_000));
    await waitFor(() => engine.requests.length === at, { what: "request at the engine" });
    expect((await post(url, ofSize(6_000))).status).toBe(429);
    held.pop()!();
    expect((await stream.head).statusCode).toBe(200);
    await waitFor(async () => (await bytes(router)) === 0, { what: "room" });
    streams.push(stream);
  }
  expect((await router.admin("GET", "/admin/status")).json.inFlight).toBe(4);
  // It is given back once: the ends of the streams change nothing.
  for (const { response } of engine.requests) response.end("data: [DONE]\n\n");
  await Promise.all(streams.map(({ body }) => body));
  await router.untilIdle();
  await waitFor(async () => (await bytes(router)) === 0, { what: "no bytes" });
  const last = openPost(url, ofSize(6_000));
  await waitFor(() => engine.requests.length === 5, { what: "request at the engine" });
  expect((await post(url, ofSize(6_000))).status).toBe(429);
  held.pop()!();
  engine.requests[4]!.response.end("data: [DONE]\n\n");
  expect((await last.head).statusCode).toBe(200);
});
