import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { systemClock } from "@espalier/core";
import { afterEach, expect, test } from "vitest";
import { createLoadClient } from "../../src/load-driver/index.ts";

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

async function listen(handler: RequestListener): Promise<string> {
  const server = createServer(handler).listen(0, "127.0.0.1");
  cleanups.push(() => {
    server.close();
    server.closeAllConnections();
  });
  await new Promise((resolve) => server.once("listening", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function client() {
  const created = createLoadClient(systemClock);
  cleanups.push(() => created.close());
  return created;
}

const request = (url: string) => ({ url, path: "/v1/chat/completions", body: '{"model":"m"}' });

test("a streamed answer gives its times, tokens and engine", async () => {
  const url = await listen((incoming, response) => {
    incoming.resume().on("end", () => {
      response.writeHead(200, { "content-type": "text/event-stream", "x-espalier-engine": "e1" });
      response.write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
      response.end('data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\ndata: [DONE]\n\n');
    });
  });
  const answer = await client().send(request(url));
  expect(answer).toMatchObject({ status: 200, promptTokens: 9, completionTokens: 1, engine: "e1", error: undefined });
  expect(answer.firstTokenMs).toBeGreaterThanOrEqual(answer.startMs);
  expect(answer.endMs).toBeGreaterThanOrEqual(answer.firstTokenMs);
});

test("a failure is an answer with an error: refused, an error status, cut in the middle, aborted", async () => {
  const sender = client();
  expect(await sender.send(request("http://127.0.0.1:1"))).toMatchObject({ status: 0, firstTokenMs: Number.NaN });

  const busy = await listen((_, response) => response.writeHead(503).end('{"error":{"message":"later"}}'));
  const refused = await sender.send(request(busy));
  expect(refused.status).toBe(503);
  expect([refused.error, refused.errorCode]).toEqual(["status 503: later", undefined]);
  const naming = await listen((_, response) =>
    response.writeHead(429).end('{"error":{"message":"full","code":"queue_full"}}'),
  );
  expect(await sender.send(request(naming))).toMatchObject({ error: "status 429: full", errorCode: "queue_full" });
  expect((await sender.send(request("http://127.0.0.1:1"))).errorCode).toBe("ECONNREFUSED");

  const cutting = await listen((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n', () => response.destroy());
  });
  expect((await sender.send(request(cutting))).error).toBeDefined();

  const silent = await listen(() => {});
  const controller = new AbortController();
  const pending = sender.send(request(silent), controller.signal);
  controller.abort();
  expect((await pending).error).toBeDefined();
});

test("a stream that ends without [DONE] is an error", async () => {
  const url = await listen((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
  });
  expect((await client().send(request(url))).error).toBe("the stream ended without [DONE]");
});

test("of an answer that is cut is known what came before: engine, first token, the headers asked for", async () => {
  const url = await listen((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream", "x-espalier-engine": "e1", "x-a": "1", "x-b": "2" });
    response.write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
    setImmediate(() => setImmediate(() => response.destroy()));
  });
  const answer = await client().send({ ...request(url), keepHeaders: ["x-a", "x-c"] });
  expect(answer).toMatchObject({ status: 200, engine: "e1", headers: { "x-a": "1" } });
  expect(answer.headers).toEqual({ "x-a": "1" });
  expect([answer.error === undefined, answer.isErrorInBody]).toEqual([false, undefined]);
});

test("an error that the answer itself tells is told apart from a cut, and a refusal keeps its headers", async () => {
  const telling = await listen((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
    response.end('data: {"error":{"message":"gone","code":"upstream_stream_broken"}}\n\n');
  });
  expect(await client().send(request(telling))).toMatchObject({
    ...{ status: 200, error: "gone", errorCode: "upstream_stream_broken", isErrorInBody: true },
  });

  const busy = await listen((_, response) => response.writeHead(429, { "retry-after": "2" }).end("{}"));
  const answer = await client().send({ ...request(busy), keepHeaders: ["retry-after"] });
  expect(answer).toMatchObject({ status: 429, headers: { "retry-after": "2" } });
});
