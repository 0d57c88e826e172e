import { createServer } from "node:https";
import type { HttpStreamObserver } from "@espalier/core";
import { certificate, createVirtualTime, privateKey, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createControlHttp } from "../../src/proxy/index.ts";
import { closed, deadUrl, httpEngine, listen, rawEngine } from "./engines.ts";

interface Seen {
  readonly heads: { status: number; headers: Readonly<Record<string, string>> }[];
  text: string;
  /** `complete`, or the code of the error. */
  readonly ends: string[];
}

function createClient(tls?: { ca: string }) {
  const time = createVirtualTime();
  const http = createControlHttp({ ...time, ...(tls ? { tls } : {}) });
  onTestFinished(() => http.close());
  const open = (url: string, more: { headers?: Record<string, string> } = {}) => {
    const seen: Seen = { heads: [], text: "", ends: [] };
    const observer: HttpStreamObserver = {
      onHead: (status, headers) => seen.heads.push({ status, headers }),
      onData(chunk) {
        seen.text += Buffer.from(chunk).toString();
      },
      onEnd: (error) => seen.ends.push(error?.code ?? "complete"),
    };
    const cancel = http.stream({ url, headTimeoutMs: 5_000, ...more }, observer);
    onTestFinished(cancel);
    return { seen, cancel, ended: () => waitFor(() => seen.ends.length > 0, { what: "end" }) };
  };
  return { http, open, time };
}

test("an answer is read as it comes, until its end", async () => {
  const engine = await httpEngine(({ response }) => {
    response.writeHead(200, { "X-Kind": "watch" });
    response.write("one ");
  });
  const { open } = createClient();
  const { seen, ended } = open(`${engine.url}/watch?a=1`, { headers: { authorization: "Bearer t" } });
  await waitFor(() => seen.text === "one ", { what: "first piece" });
  expect(seen.heads).toMatchObject([{ status: 200, headers: { "x-kind": "watch" } }]);
  expect(engine.requests[0]).toMatchObject({
    method: "GET",
    path: "/watch?a=1",
    headers: { authorization: "Bearer t" },
  });
  engine.requests[0]?.response.write("two ");
  await waitFor(() => seen.text === "one two ", { what: "second piece" });
  engine.requests[0]?.response.end("three");
  await ended();
  expect(seen).toMatchObject({ text: "one two three", ends: ["complete"] });
});

test("a head that does not come in time is an error; what comes after it has no limit", async () => {
  const engine = await httpEngine(({ response, path }) => {
    if (path === "/slow") response.writeHead(200).write("begun");
  });
  const { open, time } = createClient();
  const slow = open(`${engine.url}/slow`);
  await waitFor(() => slow.seen.text === "begun", { what: "first piece" });
  const silent = open(`${engine.url}/silent`);
  await waitFor(() => engine.requests.length === 2, { what: "request" });
  time.advance(4_999);
  expect(silent.seen.ends).toEqual([]);
  time.advance(1);
  expect(silent.seen.ends).toEqual(["upstream_timeout"]);
  time.advance(3_600_000);
  expect(slow.seen.ends).toEqual([]);
  expect(time.pendingCount).toBe(0);
});

test("a cancelled request ends its connection and says nothing more", async () => {
  const engine = await httpEngine(({ response }) => response.writeHead(200).write("begun"));
  const { open, time } = createClient();
  const { seen, cancel } = open(engine.url);
  await waitFor(() => seen.text === "begun", { what: "first piece" });
  cancel();
  cancel();
  await closed(engine.sockets[0]);
  expect(seen).toMatchObject({ text: "begun", ends: [] });
  const early = open(`${engine.url}/early`);
  early.cancel();
  expect(early.seen).toMatchObject({ heads: [], ends: [] });
  expect(time.pendingCount).toBe(0);
});

test.each([
  ["a refused connection", deadUrl, "upstream_connect_failed"],
  [
    "a reset in the middle",
    async () =>
      (
        await rawEngine((socket) => {
          socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n", () =>
            socket.resetAndDestroy(),
          );
        })
      ).url,
    "upstream_connect_failed",
  ],
  [
    "a body cut short",
    async () => (await rawEngine((socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"))).url,
    "upstream_connect_failed",
  ],
  [
    "garbage",
    async () => (await rawEngine((socket) => socket.write("no HTTP\r\n\r\n"))).url,
    "upstream_protocol_error",
  ],
  ["another scheme", async () => "ftp://127.0.0.1/", "upstream_connect_failed"],
  ["nonsense", async () => "nonsense", "upstream_connect_failed"],
])("%s is told once", async (_, url, code) => {
  const { open, time } = createClient();
  const { seen } = open(await url());
  await waitFor(
    () => {
      time.advance(1);
      return seen.ends.length > 0;
    },
    { what: "end" },
  );
  expect(seen.ends).toEqual([code]);
});

test("128 answers are read side by side, 128 requests wait for a connection, and one more is refused", async () => {
  const engine = await httpEngine(({ response }) => response.writeHead(200).write("begun"));
  const { open, time } = createClient();
  const calls = Array.from({ length: 257 }, () => open(engine.url));
  await waitFor(() => engine.requests.length === 128, { what: "128 requests" });
  time.advance(1);
  expect(calls.filter(({ seen }) => seen.ends.length > 0)).toHaveLength(1);
  expect(calls.at(-1)?.seen.ends).toEqual(["upstream_connect_failed"]);
  calls[0]?.cancel();
  await waitFor(() => engine.requests.length === 129, { what: "the next request" });
});

test("both kinds of request trust the certificates that were given, and no others", async () => {
  const server = createServer({ cert: certificate, key: privateKey }, (_, response) => response.end("hello"));
  const url = (await listen(server)).url.replace("http:", "https:");
  const limits = { timeoutMs: 5_000, maxBytes: 100 };
  const trusting = createClient({ ca: certificate });
  expect(await trusting.http.request({ url, ...limits })).toMatchObject({ status: 200, body: "hello" });
  const { seen, ended } = trusting.open(url);
  await ended();
  expect(seen).toMatchObject({ text: "hello", ends: ["complete"] });

  const strange = createClient();
  await expect(strange.http.request({ url, ...limits })).rejects.toMatchObject({ code: "upstream_connect_failed" });
  const refused = strange.open(url);
  await refused.ended();
  expect(refused.seen).toMatchObject({ text: "", ends: ["upstream_connect_failed"] });
});
