import { connect } from "node:net";
import { expect, test } from "vitest";
import { closed, httpEngine, namedEngine, rawEngine } from "./engines.ts";
import { createRig, postHead, rawClient, send } from "./rig.ts";

const upstream = (url: string, headers: readonly string[] = []) => ({ key: "a", url, headers });

test.each([
  ["connection and what it lists", { connection: "x-hop, keep-alive", "x-hop": "1" }, ["x-hop"]],
  ["keep-alive", { "keep-alive": "timeout=5" }, ["keep-alive"]],
  ["te", { te: "trailers" }, ["te"]],
  ["trailer", { trailer: "expires" }, ["trailer"]],
  ["proxy-*", { "proxy-authorization": "Basic x", "Proxy-Connection": "keep-alive" }, ["proxy-authorization"]],
  ["accept-encoding", { "accept-encoding": "gzip" }, ["accept-encoding"]],
  ["credentials", { authorization: "Bearer secret", "X-Api-Key": "secret" }, ["authorization", "x-api-key"]],
  ["the router's own", { "X-Espalier-Session": "s", "x-espalier-priority": "1" }, ["x-espalier-session"]],
])("the engine does not see %s", async (_, headers, absent) => {
  const engine = await namedEngine("a");
  const rig = await createRig({ engines: [engine.url] });
  await send(rig.port, { headers: { ...headers, "x-kept": "yes" } });
  const seen = engine.requests[0]!;
  expect(seen.headers["x-kept"]).toBe("yes");
  for (const name of absent) expect(seen.headers).not.toHaveProperty(name);
});

test("the engine sees its own host, one length, our request id and the client's trace", async () => {
  const engine = await namedEngine("a");
  const rig = await createRig({ engines: [engine.url] });
  const headers = { host: "router.example", "x-request-id": "forged", traceparent: "00-ab-cd-01", cookie: "a=b" };
  await send(rig.port, { headers, body: '{"model":"m"}' });
  const seen = engine.requests[0]!;
  expect(seen.headers).toMatchObject({
    host: `127.0.0.1:${engine.port}`,
    "content-length": "13",
    "x-request-id": "request-1",
    traceparent: "00-ab-cd-01",
    cookie: "a=b",
  });
  expect(seen.rawHeaders.filter((name) => /^(host|content-length|x-request-id)$/i.test(name))).toHaveLength(3);
  expect(seen.body.toString()).toBe('{"model":"m"}');
});

test("the caller's own headers replace the client's, and the client cannot have them taken out", async () => {
  const engine = await namedEngine("a");
  const ownHeaders = ["x-forwarded-for", "192.0.2.1", "traceparent", "00-ours-01"];
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ ownHeaders }) });
  const headers = {
    connection: "X-Forwarded-For, traceparent, x-hop",
    "X-Forwarded-For": "forged",
    Traceparent: ["forged"],
    "x-hop": "1",
  };
  await send(rig.port, { headers });
  const seen = engine.requests[0]!;
  expect(seen.headers).toMatchObject({ "x-forwarded-for": "192.0.2.1", traceparent: "00-ours-01" });
  expect(seen.headers).not.toHaveProperty("x-hop");
  expect(seen.rawHeaders.filter((name) => /^(x-forwarded-for|traceparent)$/i.test(name))).toHaveLength(2);
  await send(rig.port, { headers: { "X-Forwarded-For": "forged" } });
  expect(engine.requests[1]!.headers["x-forwarded-for"]).toBe("192.0.2.1");
  expect(engine.requests[1]!.rawHeaders).not.toContain("forged");
});

test("a client's `expect` and chunked upload reach the engine as one plain body", async () => {
  const engine = await namedEngine("a");
  const rig = await createRig({ engines: [engine.url] });
  const head = "POST /v1/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
  const client = rawClient(rig.port, `${head}3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n`);
  await client.received('{"engine":"a"}');
  expect(engine.requests[0]!.headers).not.toHaveProperty("expect");
  expect(engine.requests[0]!.headers).toMatchObject({ "content-length": "6" });
  expect(engine.requests[0]!.body.toString()).toBe("abcdef");
});

test("several buffers of a body arrive as one, and an empty POST says that it is empty", async () => {
  const engine = await namedEngine("a");
  const bodies = [[Buffer.from("one"), Buffer.from("two")], []];
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ body: bodies.shift() ?? [] }) });
  await send(rig.port);
  await send(rig.port);
  expect(engine.requests.map(({ body }) => body.toString())).toEqual(["onetwo", ""]);
  expect(engine.requests[1]!.headers["content-length"]).toBe("0");
});

test("credentials pass when the exchange says so", async () => {
  const engine = await namedEngine("a");
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ forwardAuthorization: true }) });
  await send(rig.port, { headers: { authorization: "Bearer mine", "x-api-key": "mine" } });
  expect(engine.requests[0]!.headers).toMatchObject({ authorization: "Bearer mine", "x-api-key": "mine" });
});

test("an upstream's headers replace the client's of the same name", async () => {
  const engine = await namedEngine("a");
  const headers = ["Authorization", "Bearer engine", "x-extra", "1"];
  const next = () => upstream(engine.url, headers);
  const rig = await createRig({ engines: [], exchange: () => ({ forwardAuthorization: true, next }) });
  await send(rig.port, { headers: { authorization: "Bearer client", "x-other": "2" } });
  const seen = engine.requests[0]!;
  expect(seen.headers).toMatchObject({ authorization: "Bearer engine", "x-extra": "1", "x-other": "2" });
});

test.each([
  ["", "/v1/models?limit=2"],
  ["/", "/v1/models?limit=2"],
  ["/pool/one", "/pool/one/v1/models?limit=2"],
  ["/pool/one/", "/pool/one/v1/models?limit=2"],
])("the path prefix %j of an engine's URL goes before the path", async (prefix, expected) => {
  const engine = await namedEngine("a");
  const rig = await createRig({ engines: [engine.url + prefix] });
  await send(rig.port, { method: "GET", path: "/v1/models?limit=2" });
  expect(engine.requests[0]).toMatchObject({ method: "GET", path: expected });
});

test("an engine on an IPv6 address is reached and named with brackets", async () => {
  const engine = await httpEngine(({ response }) => response.end("six"), { host: "::1" });
  const rig = await createRig({ engines: [engine.url] });
  expect((await send(rig.port)).body.toString()).toBe("six");
  expect(engine.requests[0]!.headers.host).toBe(`[::1]:${engine.port}`);
});

test("a path without a leading slash is refused and goes nowhere", async () => {
  const engine = await namedEngine("a");
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ path: "http://elsewhere/" }) });
  expect(await send(rig.port)).toMatchObject({ status: 400 });
  expect(engine.requests).toEqual([]);
});

test("a header that cannot be sent fails the request, not the engine", async () => {
  const engine = await namedEngine("a");
  const next = () => upstream(engine.url, ["x-bad", "line\nfeed"]);
  const rig = await createRig({ engines: [], exchange: () => ({ next }) });
  expect(await send(rig.port)).toMatchObject({ status: 500 });
  expect(await rig.outcome()).toMatchObject({ kind: "failed", error: { code: "internal_error" } });
  expect(rig.events).toEqual(["start a 0"]);
});

test("the client sees status, end-to-end headers in order, and nothing of the connection to the engine", async () => {
  const engine = await rawEngine((socket) =>
    socket.end(
      "HTTP/1.1 418 Whatever\r\nServer: uvicorn\r\nX-Multi: 1\r\nSet-Cookie: a=1\r\nx-multi: 2\r\nset-cookie: b=2\r\n" +
        "Connection: close, X-Private\r\nX-Private: p\r\nKeep-Alive: timeout=9\r\nProxy-Authenticate: Basic\r\n" +
        "X-Espalier-Engine: forged\r\nTrailer: x-sum\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok",
    ),
  );
  const observer = { responseHeaders: () => ["x-espalier-engine", "a", "x-espalier-attempts", "1"] };
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ observer }) });
  const answer = await send(rig.port);
  expect(answer.status).toBe(418);
  const own = ["date", "connection", "keep-alive"];
  const pairs = answer.rawHeaders.flatMap((name, i, all) =>
    i % 2 === 0 && !own.includes(name.toLowerCase()) ? [`${name}: ${all[i + 1]}`] : [],
  );
  expect(pairs).toEqual([
    "Server: uvicorn",
    "X-Multi: 1",
    "Set-Cookie: a=1",
    "x-multi: 2",
    "set-cookie: b=2",
    "Content-Length: 2",
    "x-espalier-engine: a",
    "x-espalier-attempts: 1",
  ]);
});

test("the observer hears the engine's headers without those that are dropped", async () => {
  const engine = await httpEngine(({ response }) =>
    response.writeHead(200, { "x-one": "1", "x-espalier-engine": "forged", "content-length": "0" }).end(),
  );
  const heard: string[][] = [];
  const responseStarted = (_: unknown, __: number, headers: readonly string[]) => void heard.push([...headers]);
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ observer: { responseStarted } }) });
  await send(rig.port);
  expect(heard[0]!.slice(0, 4)).toEqual(["x-one", "1", "content-length", "0"]);
  expect(heard[0]).not.toContain("forged");
});

test("bytes above 0x7f in header values pass unchanged", async () => {
  const engine = await rawEngine((socket) =>
    socket.write(Buffer.from("HTTP/1.1 200 OK\r\nx-name: caf\xe9\r\ncontent-length: 0\r\n\r\n", "latin1")),
  );
  const rig = await createRig({ engines: [engine.url] });
  expect((await send(rig.port)).headers["x-name"]).toBe("caf\xe9");
});

test.each([
  ["a value", ["x-espalier-engine", "evil\r\nset-cookie: a=b"]],
  ["a name", ["x espalier", "1"]],
])("%s that would break the client's header block is an upstream_protocol_error", async (_, pairs) => {
  const engine = await namedEngine("a");
  const observer = { responseHeaders: () => pairs };
  const rig = await createRig({ engines: [engine.url], exchange: () => ({ observer }) });
  const answer = await send(rig.port);
  expect(answer.status).toBe(502);
  expect(JSON.parse(answer.body.toString())).toMatchObject({ error: { code: "upstream_protocol_error" } });
  expect(answer.headers).not.toHaveProperty("set-cookie");
});

test("HEAD gives the headers of the body that is not sent", async () => {
  const engine = await httpEngine(({ response }) => response.writeHead(200, { "content-length": "1234" }).end());
  const rig = await createRig({ engines: [engine.url] });
  const answer = await send(rig.port, { method: "HEAD" });
  expect(answer).toMatchObject({ status: 200, complete: true });
  expect(answer.headers["content-length"]).toBe("1234");
  expect(await rig.outcome()).toEqual({ kind: "completed", status: 200, bytes: 0 });
  expect(engine.requests[0]!.method).toBe("HEAD");
});

test.each([204, 304])("status %i passes without a body, and the connection goes on", async (status) => {
  const engine = await httpEngine(({ response }) => response.writeHead(status, { etag: '"x"' }).end());
  const rig = await createRig({ engines: [engine.url] });
  for (let i = 0; i < 2; i++) {
    const answer = await send(rig.port, { method: "GET" });
    expect(answer).toMatchObject({ status, complete: true });
    expect(answer.headers.etag).toBe('"x"');
    expect(answer.headers).not.toHaveProperty("transfer-encoding");
  }
  expect(rig.events).toEqual(["start a 0", `answer a ${status}`, "start a 0", `answer a ${status}`]);
});

test("informational responses are ignored and trailers dropped", async () => {
  const engine = await rawEngine((socket) =>
    socket.write(
      "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" +
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n",
    ),
  );
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, postHead);
  await client.received("0\r\n\r\n");
  expect(client.text()).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(client.text()).not.toMatch(/link|x-sum/);
  expect(rig.events).toEqual(["start a 0", "answer a 200", "byte a"]);
});

test("an HTTP/1.0 client gets a body that ends with its connection", async () => {
  const engine = await httpEngine(({ response }) => {
    response.write("part ");
    response.end("whole");
  });
  const rig = await createRig({ engines: [engine.url] });
  const client = rawClient(rig.port, "GET /v1/models HTTP/1.0\r\n\r\n");
  await closed(client.socket);
  expect(client.text()).toMatch(/\r\n\r\npart whole$/);
  expect(client.text()).not.toMatch(/transfer-encoding/i);
});

test("thousands of requests on one client's socket leave no listeners behind", async () => {
  const engine = await namedEngine("a");
  const rig = await createRig({ engines: [engine.url] });
  const warnings: Error[] = [];
  const note = (warning: Error) => void warnings.push(warning);
  process.on("warning", note);
  const socket = connect(rig.port, "127.0.0.1");
  const total = 3_000;
  let answered = 0;
  let unread = "";
  await new Promise<void>((resolve, reject) => {
    socket.on("error", reject);
    socket.on("data", (chunk: Buffer) => {
      unread += chunk.toString("latin1");
      if (!unread.endsWith("0\r\n\r\n")) return;
      unread = "";
      answered += 1;
      if (answered === total) resolve();
      else socket.write(postHead);
    });
    socket.write(postHead);
  });
  socket.destroy();
  process.off("warning", note);
  expect(warnings).toEqual([]);
  expect(engine.sockets).toHaveLength(1);
  expect(rig.proxy.activeStreams()).toBe(0);
});
