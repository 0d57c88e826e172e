import type { RequestListener } from "node:http";
import { connect } from "node:net";
import {
  measureLoad,
  type Pace,
  prepareRequest,
  type RequestShape,
  type StreamShape,
  startBareProxy,
  startBenchEngine,
} from "@espalier/bench";
import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { allocatedPerMs, parseCollections } from "../src/data-path/garbage.ts";
import { hasCompiler, type Stoppable, startAnswering } from "./rig.ts";

const parts: Stoppable[] = [];
const keep = (part: Stoppable): void => void parts.unshift(part);
afterEach(async () => {
  for (const part of parts.splice(0)) await part.stop();
});

describe.runIf(hasCompiler)("the engine", () => {
  async function startEngine(): Promise<string> {
    const engine = await startBenchEngine(1);
    parts.unshift(engine);
    return engine.urls[0]!;
  }

  async function ask(
    url: string,
    stream: StreamShape | undefined,
    includeUsage: boolean,
    content = "",
  ): Promise<Response> {
    const headers = { "content-type": "application/json" };
    const shape = stream ? { stream: true, stop: `stream ${stream.tokens},${stream.gapMs}` } : {};
    const options = includeUsage ? { stream_options: { include_usage: true } } : {};
    const messages = [{ role: "user", content }];
    const body = JSON.stringify({ model: "bench-model", messages, ...shape, ...options });
    return fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
  }

  test.each([0, 10_000, 100_000, 1_000_000])(
    "answers a plain request of %d bytes with JSON of about 700 bytes that reports usage",
    async (bytes) => {
      const response = await ask(await startEngine(), undefined, false, "x".repeat(bytes));
      const text = await response.text();
      expect(response.headers.get("content-type")).toBe("application/json");
      expect(text.length).toBeGreaterThan(600);
      expect(text.length).toBeLessThan(900);
      expect(JSON.parse(text).usage).toMatchObject({ prompt_tokens: 1_024, completion_tokens: 64 });
    },
  );

  test.each([
    { gapMs: 0, includeUsage: false },
    { gapMs: 0, includeUsage: true },
    { gapMs: 1, includeUsage: true },
  ])("streams one event a token, and usage when asked for: $gapMs ms, $includeUsage", async (shape) => {
    const response = await ask(await startEngine(), { tokens: 48, gapMs: shape.gapMs }, shape.includeUsage);
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    const events = (await response.text()).split("\n\n").filter((event) => event !== "");
    expect(events.at(-1)).toBe("data: [DONE]");
    const chunks = events.slice(0, -1).map((event) => JSON.parse(event.slice("data: ".length)));
    const contents = chunks.map((chunk) => chunk.choices[0]?.delta.content).filter((content) => content);
    expect(contents).toEqual(Array.from({ length: 48 }, (_, index) => ` word${index}`));
    expect(chunks.filter((chunk) => chunk.choices[0]?.finish_reason === "stop")).toHaveLength(1);
    expect(chunks.filter((chunk) => chunk.usage)).toHaveLength(shape.includeUsage ? 1 : 0);
  });

  test("looks like one to a router", async () => {
    const url = await startEngine();
    expect((await fetch(`${url}/health`)).status).toBe(200);
    const models = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
    expect(models.data.map(({ id }) => id)).toEqual(["bench-model"]);
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toMatch(/^vllm:num_requests_running\{.*\} 0$/m);
  });

  test("reads a request that comes in single bytes, and two that come at once", async () => {
    const url = await startEngine();
    const socket = connect({ port: Number(new URL(url).port), host: "127.0.0.1", noDelay: true });
    parts.unshift({ stop: async () => socket.destroy() });
    let text = "";
    socket.setEncoding("utf8").on("data", (more) => {
      text += more;
    });
    const request = "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}";
    for (const letter of request) socket.write(letter);
    socket.write(request + request);
    await waitFor(() => text.split("HTTP/1.1 200 OK").length === 4, { what: "three answers" });
  });

  test.each([10, 20_000, 1_000_000])(
    "reads a body of %d bytes in chunks, and the next request after it",
    async (bytes) => {
      const url = await startEngine();
      const socket = connect(Number(new URL(url).port), "127.0.0.1");
      parts.unshift({ stop: async () => socket.destroy() });
      let text = "";
      socket.setEncoding("utf8").on("data", (more) => {
        text += more;
      });
      const piece = "x".repeat(bytes);
      const chunk = `${bytes.toString(16)}\r\n${piece}\r\n`;
      const head = "POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
      socket.write(`${head}${chunk}${chunk}0\r\n\r\n${head}5;a=b\r\n12345\r\n0\r\na: b\r\n\r\n`);
      socket.write("POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}");
      await waitFor(() => text.split("HTTP/1.1 200 OK").length === 4, { what: "three answers" });
    },
  );

  test("ends the connection of a body that is not in chunks as its head says, and serves others", async () => {
    const url = await startEngine();
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    const closed = new Promise<boolean>((resolve) => socket.on("error", () => {}).on("close", () => resolve(true)));
    socket.write("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nwhat\r\n");
    expect(await closed).toBe(true);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });

  test("ends the connection of a head that does not end, and serves others", async () => {
    const url = await startEngine();
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    const closed = new Promise<boolean>((resolve) => socket.on("error", () => {}).on("close", () => resolve(true)));
    socket.write(`GET / HTTP/1.1\r\nlong: ${"x".repeat(90_000)}`);
    expect(await closed).toBe(true);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });
});

describe.runIf(hasCompiler)("the load generator", () => {
  const shape: RequestShape = { bodyBytes: 1_000, messages: 2 };
  const one: Pace = { kind: "closed", concurrency: 1 };

  function send(url: string, requests: number, pace = one, given = shape) {
    const load = { request: prepareRequest(given), pace, extent: { requests } };
    return measureLoad({ name: "it", urls: [url], pid: process.pid }, load, process.pid);
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

  test("makes each request a prompt of its own of the same length, on one connection", async () => {
    const bodies: string[] = [];
    const sockets = new Set<unknown>();
    const url = await startAnswering((message, response) => {
      sockets.add(message.socket);
      readBody((body) => {
        bodies.push(body);
        response.end("{}");
      })(message, response);
    }, keep);
    await send(url, 5);
    await send(url, 5);
    expect(bodies.map((body) => body.length)).toEqual(Array.from({ length: 10 }, () => 1_000));
    const starts = bodies.map((body) => JSON.parse(body).messages[0].content.slice(0, 12));
    expect(new Set(starts).size).toBe(10);
    expect(sockets.size).toBe(2);
  });

  test.each([4_096, 49_152, 409_600])(
    "sends bodies of %d bytes through the bare proxy, which spreads them over engines",
    async (bodyBytes) => {
      const engine = await startBenchEngine(2);
      const bare = await startBareProxy(engine.urls);
      parts.push(bare, engine);
      const measured = await measureLoad(
        { name: "bare", urls: [bare.url], pid: process.pid },
        {
          request: prepareRequest({ bodyBytes, messages: 2 }),
          pace: { kind: "closed", concurrency: 4 },
          warmUp: { requests: 5 },
          extent: { requests: 50 },
        },
        engine.pid,
      );
      expect(measured.requests).toBe(50);
      expect(measured.totalMs).toHaveLength(50);
      expect(measured.totalMs).toEqual(measured.totalMs.toSorted());
      expect(measured.shares.load).toBeGreaterThan(0);
    },
  );

  test("ends a closed loop after its time", async () => {
    const engine = await startBenchEngine(1);
    parts.push(engine);
    const load = { request: prepareRequest(shape), pace: one, extent: { durationMs: 50 } };
    const { requests, requestsPerSecond, cpuMicrosPerRequest } = await measureLoad(
      { name: "direct", urls: engine.urls },
      load,
      engine.pid,
    );
    expect(requests / requestsPerSecond).toBeGreaterThanOrEqual(0.05);
    expect(requests / requestsPerSecond).toBeLessThan(5);
    expect(cpuMicrosPerRequest).toBeNaN();
  });

  const streamed = { ...shape, stream: { tokens: 48, gapMs: 5 } };

  test("keeps to the rate of an open loop, whatever the system does", async () => {
    const engine = await startBenchEngine(1);
    parts.push(engine);
    const measured = await send(engine.urls[0]!, 60, { kind: "open", ratePerSecond: 500, seed: 7 }, streamed);
    expect(measured.requests).toBe(60);
    // Each takes 235 ms, so one after the other they would take over 14 s.
    expect(measured.totalMs[0]).toBeGreaterThan(200);
    expect(measured.requestsPerSecond).toBeGreaterThan(60);
    expect(measured.firstByteMs[0]).toBeLessThan(measured.totalMs[0]!);
  });

  test("starts the requests of a burst at once, and the next burst when all have ended", async () => {
    let open = 0;
    let most = 0;
    const waiting: Parameters<RequestListener>[1][] = [];
    const url = await startAnswering((message, response) => {
      message.resume().on("end", () => {
        open += 1;
        most = Math.max(most, open);
        waiting.push(response);
        if (waiting.length < 8) return;
        for (const each of waiting.splice(0)) {
          open -= 1;
          each.end("{}");
        }
      });
    }, keep);
    const { requests } = await send(url, 24, { kind: "burst", streams: 8 });
    expect(requests).toBe(24);
    expect(most).toBe(8);
  });

  test.each<{ readonly what: string; readonly listener: RequestListener; readonly error: RegExp }>([
    {
      what: "a status other than 200",
      listener: readBody((_, response) => response.writeHead(429, { "content-length": 4 }).end("slow")),
      error: /^a request to it failed: answered HTTP\/1\.1 429 .*slow/,
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
      error: /closed before its answer was complete|connection was lost/,
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
      error: /head of an answer does not end/,
    },
  ])("takes $what for an error", async ({ listener, error }) => {
    await expect(send(await startAnswering(listener, keep), 1)).rejects.toThrow(error);
  });

  test("reads an answer that comes in single bytes like any other", async () => {
    const text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    const url = await startAnswering(
      readBody((_, response) => {
        response.socket?.setNoDelay(true);
        for (const letter of text) response.socket?.write(letter);
      }),
      keep,
    );
    const { requests, firstByteMs, totalMs } = await send(url, 1);
    expect(requests).toBe(1);
    expect(totalMs[0]).toBeGreaterThanOrEqual(firstByteMs[0]!);
  });

  test("says so when nobody listens", async () => {
    await expect(send("http://127.0.0.1:9", 1)).rejects.toThrow(/connect: Connection refused/);
  });
});

const trace = `Warning: something else
[7:0x5f00]      100 ms: Scavenge 10.0 (15.0) -> 4.0 (16.0) MB, pooled: 0 MB, 0.61 / 0.00 ms  (average mu = 1.000) task;
[7:0x5f00]      200 ms: Scavenge 12.0 (16.0) -> 5.0 (17.0) MB, 0.92 / 0.00 ms  allocation failure;
[7:0x6a11]      210 ms: Scavenge 9.0 (16.0) -> 1.0 (17.0) MB, 0.92 / 0.00 ms  allocation failure;
[7:0x5f00]      300 ms: Mark-Compact (reduce) 13.5 (17.0) -> 3.0 (9.0) MB, 2.01 / 0.02 ms  (+ 1.0 ms in 5 steps)
[7:0x5f00]      400 ms: Scavenge 11.0 (16.0) -> 5.0 (17.0) MB, 0.92 / 0.00 ms  allocation failure;
`;

test("what is allocated is told from V8's collections: what the heap grew by between them", () => {
  const collections = parseCollections(trace);
  const mebibyte = 1_048_576;
  expect(collections).toHaveLength(4);
  expect(collections[2]).toEqual({ atMs: 300, beforeBytes: 13.5 * mebibyte, afterBytes: 3 * mebibyte });
  // 8, 8.5 and 8 in the time from 100 to 400 ms.
  expect(allocatedPerMs(collections, 300)).toBeCloseTo((24.5 * mebibyte) / 300);
  expect(() => allocatedPerMs(collections, 299)).toThrow("3 collections are too few");
  expect(() => allocatedPerMs([], 300)).toThrow("0 collections are too few");
});
