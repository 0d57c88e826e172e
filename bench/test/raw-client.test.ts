import type { RequestListener } from "node:http";
import { createRawClient, maxConnections, type PreparedRequest, prepareRequest, type RawClient } from "@espalier/bench";
import { systemClock } from "@espalier/common";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { type Stoppable, startAnswering } from "./rig.ts";

const parts: Stoppable[] = [];
const keep = (part: Stoppable): void => void parts.unshift(part);
afterEach(async () => {
  for (const part of parts.splice(0)) await part.stop();
});

const request: PreparedRequest = prepareRequest({ bodyBytes: 1_000, messages: 2 });

async function clientOf(listener: RequestListener): Promise<RawClient> {
  const client = createRawClient([await startAnswering(listener, keep)], systemClock);
  keep({ stop: async () => client.close() });
  return client;
}

const readBody = (listener: (body: string, response: Parameters<RequestListener>[1]) => void): RequestListener => {
  return (message, response) => {
    let body = "";
    message.setEncoding("utf8").on("data", (text: string) => {
      body += text;
    });
    message.on("end", () => listener(body, response));
  };
};

test("each request is a prompt of its own of the same length, on one connection", async () => {
  const bodies: string[] = [];
  let connections = 0;
  const client = await clientOf((message, response) => {
    message.socket.once("close", () => {});
    if (message.socket.listenerCount("close") === 2) connections++;
    readBody((body) => {
      bodies.push(body);
      response.end("{}");
    })(message, response);
  });
  for (let count = 0; count < 5; count++) await client.send(request);
  expect(bodies.map((body) => body.length)).toEqual([1_000, 1_000, 1_000, 1_000, 1_000]);
  expect(new Set(bodies).size).toBe(5);
  const starts = bodies.map((body) => JSON.parse(body).messages[0].content.slice(0, 12));
  expect(new Set(starts).size).toBe(5);
  expect(connections).toBeLessThanOrEqual(1);
});

test("the first byte of a stream comes before its end", async () => {
  const responses: Parameters<RequestListener>[1][] = [];
  const client = await clientOf(
    readBody((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('data: {"a":1}\n\n');
      responses.push(response);
    }),
  );
  const answered = client.send(request);
  await waitFor(() => responses.length === 1, { what: "the request" });
  const startedMs = systemClock.nowMs();
  await waitFor(() => systemClock.nowMs() > startedMs + 20, { what: "20 ms" });
  responses[0]?.write("data: [DONE]\n\n");
  responses[0]?.end();
  const { firstByteMs, totalMs } = await answered;
  expect(firstByteMs).toBeGreaterThan(0);
  expect(totalMs).toBeGreaterThan(firstByteMs + 10);
});

test.each<{ readonly what: string; readonly listener: RequestListener; readonly error: RegExp }>([
  {
    what: "a status other than 200",
    listener: readBody((_, response) => response.writeHead(429, { "content-length": 4 }).end("slow")),
    error: /answered HTTP\/1\.1 429 .*slow/,
  },
  {
    what: "a stream without its end mark",
    listener: readBody((_, response) => {
      response.write("data: {}\n\n");
      response.end();
    }),
    error: /ended without \[DONE\]/,
  },
  {
    what: "a body that is cut off",
    listener: readBody((_, response) => {
      response.writeHead(200, { "content-length": 100 });
      response.write("{");
      setImmediate(() => response.destroy());
    }),
    error: /closed before the answer was complete|ECONNRESET/,
  },
  {
    what: "a body longer than it says",
    listener: readBody((_, response) => response.socket?.write("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{}")),
    error: /longer than its content-length/,
  },
  {
    what: "a body of unknown end",
    listener: readBody((_, response) => response.socket?.write("HTTP/1.1 200 OK\r\n\r\n{}")),
    error: /neither length nor chunks/,
  },
  {
    what: "something that is not HTTP",
    listener: readBody((_, response) => response.socket?.write(Buffer.alloc(70_000, "x"))),
    error: /head of the answer does not end/,
  },
])("$what is an error", async ({ listener, error }) => {
  const client = await clientOf(listener);
  await expect(client.send(request)).rejects.toThrow(error);
});

test("an answer that comes in single bytes is read like any other", async () => {
  const text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
  const client = await clientOf(
    readBody((_, response) => {
      for (const letter of text) response.socket?.write(letter);
    }),
  );
  const { firstByteMs, totalMs } = await client.send(request);
  expect(totalMs).toBeGreaterThanOrEqual(firstByteMs);
});

test("one request more than the client may have under way is refused", async () => {
  const client = createRawClient(["http://127.0.0.1:9"], systemClock);
  const sent = Array.from({ length: maxConnections + 1 }, () => client.send(request));
  const settled = await Promise.allSettled(sent);
  client.close();
  expect(settled.every(({ status }) => status === "rejected")).toBe(true);
  const last = settled.at(-1);
  expect(String(last?.status === "rejected" && last.reason)).toContain(`more than ${maxConnections} requests`);
  const first = settled[0];
  expect(String(first?.status === "rejected" && first.reason)).not.toContain("more than");
});
