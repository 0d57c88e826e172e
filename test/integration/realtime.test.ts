import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { type ClientOptions, WebSocket, WebSocketServer } from "ws";
import { call, errorOf } from "./client.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

type Event = Readonly<Record<string, unknown>>;

/** A client of the realtime API, with all that it has received. */
class Client {
  readonly events: Event[] = [];
  readonly socket: WebSocket;
  closed: { readonly code: number; readonly reason: string } | undefined;
  /** The answer in place of an upgrade. */
  refusal: { readonly status: number; readonly body: string } | undefined;
  headers: IncomingMessage["headers"] = {};

  constructor(url: string, options: ClientOptions = {}) {
    this.socket = new WebSocket(url.replace("http", "ws"), options);
    rig.own(() => this.socket.terminate());
    this.socket.on("message", (data) => this.events.push(JSON.parse(String(data)) as Event));
    this.socket.on("close", (code, reason) => {
      this.closed = { code, reason: String(reason) };
    });
    this.socket.on("error", () => {});
    this.socket.on("upgrade", ({ headers }) => {
      this.headers = headers;
    });
    this.socket.on("unexpected-response", (_, answer) => {
      let body = "";
      answer.on("data", (chunk) => {
        body += chunk;
      });
      answer.on("end", () => {
        this.refusal = { status: answer.statusCode ?? 0, body };
      });
    });
  }

  get types(): readonly unknown[] {
    return this.events.map(({ type }) => type);
  }

  send(event: Event): void {
    this.socket.send(JSON.stringify(event));
  }

  opened(): Promise<unknown> {
    return waitFor(() => this.socket.readyState === WebSocket.OPEN, { what: "open connection" });
  }

  until(type: string): Promise<unknown> {
    return waitFor(() => this.types.includes(type), { what: type });
  }

  end(): Promise<unknown> {
    return waitFor(() => this.closed !== undefined, { what: "closed connection" });
  }

  /** Has half a second of audio transcribed. */
  async transcribe(model: string): Promise<Event> {
    await this.until("session.created");
    this.send({ type: "session.update", model });
    this.send({ type: "input_audio_buffer.commit" });
    this.send({ type: "input_audio_buffer.append", audio: Buffer.alloc(16_000, 7).toString("base64") });
    this.send({ type: "input_audio_buffer.commit", final: true });
    await this.until("transcription.done");
    return this.events.at(-1)!;
  }
}

const realtime = (router: RunningRouter, query = "", options?: ClientOptions): Client =>
  new Client(`${router.url}/v1/realtime${query}`, options);

test("audio is transcribed over a WebSocket; usage, attempts and load are counted", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const client = realtime(router, "?model=tiny");
  const done = await client.transcribe("tiny");
  expect(client.types).toEqual([
    "session.created",
    ...Array<string>(7).fill("transcription.delta"),
    "transcription.done",
  ]);
  const deltas = client.events.slice(1, -1).map(({ delta }) => delta);
  expect(done).toMatchObject({ text: deltas.join(""), usage: { prompt_tokens: 7, completion_tokens: 7 } });
  expect(client.headers).toMatchObject({ "x-espalier-engine": sim!.id, "x-espalier-attempts": "1" });
  const loadOf = async () => (await router.engines())[0]?.targets[0]?.load.in_flight;
  expect(await loadOf()).toBe(1);
  expect((await router.metrics()).sum("espalier_realtime_connections")).toBe(1);

  client.socket.close(1000);
  await client.end();
  expect(client.closed?.code).toBe(1000);
  await router.untilIdle();
  const metrics = await router.metrics();
  expect(metrics.sum("espalier_realtime_connections")).toBe(0);
  const labels = { endpoint: "realtime", model: "tiny", status: "101", outcome: "answered" };
  expect(metrics.sum("espalier_requests_total", labels)).toBe(1);
  expect(metrics.sum("espalier_tokens_total", { model: "tiny", kind: "completion" })).toBe(7);
  const past = await router.admin("GET", `/admin/requests/${client.headers["x-request-id"]}`);
  expect([past.status, past.text]).toEqual([200, expect.stringContaining(sim!.id)]);
});

test("a key, the limits and the handshake are checked before an engine is asked", async () => {
  const [sim] = await rig.sims(1);
  const config = { "api-keys": [{ name: "ours", key: "k".repeat(32) }], limits: { "max-concurrent-requests": 1 } };
  const router = await rig.router({ engines: [sim!.url], config });
  const keyless = realtime(router);
  await waitFor(() => keyless.refusal !== undefined, { what: "refusal" });
  expect(keyless.refusal).toMatchObject({ status: 401, body: expect.stringContaining("missing_api_key") });
  const headers = { authorization: `Bearer ${"k".repeat(32)}` };
  const unknown = realtime(router, "?model=none", { headers });
  await waitFor(() => unknown.refusal !== undefined, { what: "refusal" });
  expect(unknown.refusal).toMatchObject({ status: 404, body: expect.stringContaining("model_not_found") });
  await router.untilIdle();

  const first = realtime(router, "", { headers });
  await first.until("session.created");
  const second = realtime(router, "", { headers });
  await waitFor(() => second.refusal !== undefined, { what: "refusal" });
  expect(second.refusal).toMatchObject({ status: 429, body: expect.stringContaining("overloaded") });
  first.socket.close();
  await router.untilIdle();
  expect((await sim!.state()).totals).toMatchObject({ finished: 1 });

  const plain = await call(`${router.url}/v1/realtime`, { headers });
  expect([plain.status, errorOf(plain).code]).toEqual([426, "upgrade_required"]);
});

// Pages of any site could open a connection to a router without keys, and read from it.
test("a page opens a connection only if it is the router's own, or of a site on the list", async () => {
  const [sim] = await rig.sims(1);
  const config = { cors: { origins: ["https://chat.example.com"] } };
  const router = await rig.router({ engines: [sim!.url], config });
  for (const origin of ["https://elsewhere.example.com", "null"]) {
    const refused = realtime(router, "", { origin });
    await waitFor(() => refused.refusal !== undefined, { what: "refusal" });
    expect(refused.refusal).toMatchObject({ status: 403, body: expect.stringContaining("cross_origin_request") });
  }
  for (const origin of ["https://chat.example.com", router.url]) {
    const client = realtime(router, "", { origin });
    await client.until("session.created");
    client.socket.close();
    await client.end();
  }
});

test("a client that offers HTTP/2 instead is answered over HTTP/1.1", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const headers = { connection: "Upgrade, HTTP2-Settings", upgrade: "h2c", "http2-settings": "AAMAAABk" };
  const body = JSON.stringify({ model: "tiny", prompt: "hello", max_tokens: 1 });
  const answer = await call(`${router.url}/v1/completions`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body,
  });
  expect(answer.status).toBe(200);
});

test("without a model in the query, the client's first event names it, also by an alias", async () => {
  const [alpha] = await rig.sims(1, { models: ["alpha"] });
  const [beta] = await rig.sims(1, { models: ["beta"] });
  const config = { models: { aliases: { b: "beta" } } };
  const router = await rig.router({ engines: [alpha!.url, beta!.url], config });
  for (const [query, model] of [
    ["", "beta"],
    ["", "b"],
    ["?model=b", "b"],
  ] as const) {
    const client = realtime(router, query);
    const done = await client.transcribe(model);
    expect(client.types.filter((type) => type === "session.created")).toHaveLength(1);
    expect(client.types).not.toContain("error");
    expect(done).toMatchObject({ usage: { completion_tokens: 7 } });
    client.socket.close();
    await client.end();
  }
  expect((await alpha!.state()).totals).toMatchObject({ finished: 0 });

  const unknown = realtime(router);
  await unknown.until("session.created");
  unknown.socket.ping();
  await once(unknown.socket, "pong");
  unknown.send({ type: "session.update", model: "gamma" });
  await unknown.end();
  expect(unknown.events.at(-1)).toMatchObject({ type: "error", code: "model_not_found" });
  expect(unknown.closed?.code).toBe(1008);

  const wordy = realtime(router);
  await wordy.until("session.created");
  wordy.send({ type: "input_audio_buffer.append", audio: "A".repeat(262_145) });
  await wordy.end();
  expect(wordy.events.at(-1)).toMatchObject({ type: "error", code: "invalid_body" });
  await router.untilIdle();
});

test("a session goes where it went before", async () => {
  const sims = await rig.sims(3);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: { name: "sticky" } } });
  const engines = new Set<unknown>();
  for (let round = 0; round < 4; round++) {
    const client = realtime(router, "", { headers: { "x-espalier-session-id": "call-7" } });
    await client.until("session.created");
    engines.add(client.headers["x-espalier-engine"]);
    client.socket.close();
    await client.end();
  }
  expect(engines.size).toBe(1);
});

/** An engine that serves one model and treats upgrades as told. */
async function engine(
  upgrade: (request: IncomingMessage, socket: Socket, head: Buffer) => void,
  model = "tiny",
): Promise<string> {
  const server = createServer((request, response) => {
    if (request.url === "/v1/models") response.end(JSON.stringify({ object: "list", data: [{ id: model }] }));
    else response.end();
  });
  server.on("upgrade", upgrade as never);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  rig.own(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as { port: number };
  return `http://127.0.0.1:${port}`;
}

const refusing = (status: string) =>
  engine((_, socket) => socket.end(`HTTP/1.1 ${status}\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!`));

test("an engine that refuses the upgrade is passed over; the refusal of the last one reaches the client", async () => {
  const refuser = await refusing("403 Forbidden");
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [refuser, sim!.url], config: { policy: "round_robin" } });
  for (let round = 0; round < 6; round++) {
    const client = realtime(router);
    await client.until("session.created");
    expect(client.headers["x-espalier-engine"]).toBe(sim!.id);
    client.socket.close();
    await client.end();
  }
  const breakers = (await router.engines()).map(({ breaker }) => breaker.state);
  expect(breakers).toEqual(["closed", "closed"]);

  const alone = await rig.router({ engines: [refuser] });
  const client = realtime(alone);
  await waitFor(() => client.refusal !== undefined, { what: "refusal" });
  expect(client.refusal).toEqual({ status: 403, body: "no!" });
  await alone.untilIdle();
});

test("an engine that cannot be reached is passed over", async () => {
  const gone = await engine((_, socket) => socket.resetAndDestroy());
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [gone, sim!.url], config: { policy: "round_robin" } });
  for (let round = 0; round < 2; round++) {
    const client = realtime(router);
    await client.until("session.created");
    expect(client.headers["x-espalier-engine"]).toBe(sim!.id);
    client.socket.close();
    await client.end();
  }
});

test("an engine that dies closes its clients with 1011, and counts as a failure", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  await sim!.fault({ kind: "reset-mid-stream", afterTokens: 2 });
  const client = realtime(router);
  const failed = client.transcribe("tiny").catch(() => undefined);
  await client.end();
  expect(client.closed?.code).toBe(1011);
  expect(client.types).toEqual(["session.created", "transcription.delta", "transcription.delta"]);
  await router.untilIdle();
  const labels = { endpoint: "realtime", model: "tiny", status: "502", outcome: "cut" };
  expect((await router.metrics()).sum("espalier_requests_total", labels)).toBe(1);
  client.events.push({ type: "transcription.done" });
  await failed;
});

test("a client that goes takes its engine's connection with it", async () => {
  const ends: string[] = [];
  const accepting = new WebSocketServer({ noServer: true });
  const url = await engine((request, socket, head) =>
    accepting.handleUpgrade(request, socket, head, (open) => open.on("close", (code) => ends.push(String(code)))),
  );
  const router = await rig.router({ engines: [url] });
  const client = realtime(router);
  await client.opened();
  client.socket.terminate();
  await waitFor(() => ends.length === 1, { what: "closed engine" });
  expect(ends).toEqual(["1006"]);
  await router.untilIdle();
});

test("an engine that waits for the client to speak is open at once, and large messages pass both ways", async () => {
  const accepting = new WebSocketServer({ noServer: true, perMessageDeflate: true });
  const url = await engine((request, socket, head) =>
    accepting.handleUpgrade(request, socket, head, (open) => open.on("message", (data) => open.send(data))),
  );
  const router = await rig.router({ engines: [url] });
  const client = realtime(router);
  await client.opened();
  const text = "x".repeat(8 * 1024 * 1024);
  client.send({ type: "echo", text });
  await client.until("echo");
  expect(client.events[0]?.text).toBe(text);
  expect(client.socket.extensions).toBe("");
});

test("an accepted client keeps an engine's first message that is no greeting, and learns why it was refused", async () => {
  const accepting = new WebSocketServer({ noServer: true });
  const first = JSON.stringify({ type: "session.created", padding: "x".repeat(4_096) });
  const greeter = await engine((request, socket, head) =>
    accepting.handleUpgrade(request, socket, head, (open) => open.send(first)),
  );
  const wordy = await engine(
    (_, socket) => void socket.end(`HTTP/1.1 403 No\r\nconnection: close\r\n\r\n${"x".repeat(65_537)}`),
    "other",
  );
  const router = await rig.router({ engines: [greeter, wordy] });
  const client = realtime(router);
  await client.until("session.created");
  client.send({ type: "session.update", model: "tiny" });
  await waitFor(() => client.events.length === 2, { what: "second greeting" });
  expect(client.events[1]).toEqual(JSON.parse(first));

  const refused = realtime(router);
  await refused.until("session.created");
  refused.send({ type: "session.update", model: "other" });
  await refused.end();
  expect(refused.events[1]).toEqual({
    ...{ type: "error", code: "engine_error" },
    error: "The engine answered with status 403.",
  });
  expect(refused.closed?.code).toBe(1008);
});

test("the listener and the engine may use TLS", async () => {
  const path = (name: string): string => fileURLToPath(new URL(`fixtures/${name}`, import.meta.url));
  const [cert, key] = [readFileSync(path("localhost.crt")), readFileSync(path("localhost.key"))];
  const accepting = new WebSocketServer({ noServer: true });
  const secure = createSecureServer({ cert, key }, (_, response) =>
    response.end(JSON.stringify({ object: "list", data: [{ id: "tiny" }] })),
  );
  secure.on("upgrade", (request, socket, head) =>
    accepting.handleUpgrade(request, socket, head, (open) => open.on("message", (data) => open.send(data))),
  );
  secure.listen(0, "127.0.0.1");
  await once(secure, "listening");
  rig.own(() => {
    secure.close();
    secure.closeAllConnections();
  });
  const { port } = secure.address() as { port: number };
  const tls = { "cert-file": path("localhost.crt"), "key-file": path("localhost.key") };
  const config = { listen: { tls }, "engine-tls": { "ca-file": path("localhost.crt") } };
  const router = await rig.router({ engines: [`https://127.0.0.1:${port}`], config });
  const client = realtime(router, "", { ca: cert });
  await client.opened();
  client.send({ type: "echo" });
  await client.until("echo");
  client.socket.close(1000);
  await client.end();
  expect(client.closed?.code).toBe(1000);
});

test("a silent connection is closed with 1001", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], config: { timeouts: { "realtime-idle": "300ms" } } });
  const client = realtime(router);
  await client.end();
  expect(client.closed).toEqual({ code: 1001, reason: "The connection was idle." });
  await router.untilIdle();
});

test("drains of an engine and of the router close connections with 1012 after the grace", async () => {
  const sims = await rig.sims(2);
  const config = { policy: "round_robin", drain: { grace: "300ms" } };
  const router = await rig.router({ engines: sims.map(({ url }) => url), config });
  const [first, second] = [realtime(router), realtime(router)];
  await Promise.all([first.until("session.created"), second.until("session.created")]);
  const drained = String(first.headers["x-espalier-engine"]);
  expect(second.headers["x-espalier-engine"]).not.toBe(drained);
  await router.admin("PATCH", `/admin/engines/${encodeURIComponent(drained)}`, { draining: true });
  await first.end();
  expect(first.closed).toEqual({ code: 1012, reason: "The engine is draining." });
  expect(second.closed).toBeUndefined();

  const cut = await router.router.drain.run({ delayMs: 0, graceMs: 300 });
  await second.end();
  expect([cut, second.closed]).toEqual([1, { code: 1012, reason: "The router is draining." }]);
});
