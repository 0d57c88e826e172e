import { once } from "node:events";
import { gzipSync } from "node:zlib";
import { waitFor } from "@espalier/testing";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { call, chat, post, type RawConnection, rawConnection, rawPost } from "./client.ts";
import { type HttpEngine, httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
const maxBodyBytes = 65_536;
let router: RunningRouter;
let engine: HttpEngine;

beforeAll(async () => {
  engine = await httpEngine(rig, ({ body, response, headers }) => {
    const { marker = null } = JSON.parse(body.toString() || "{}") as { marker?: unknown };
    const text = JSON.stringify({ marker, tenant: headers["x-tenant"] ?? null });
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
    response.end(text);
  });
  const limits = { "max-body-bytes": maxBodyBytes, "max-header-bytes": 4_096, "max-nesting": 32 };
  const timeouts = { "request-receive": "300ms", "keep-alive": "1s" };
  router = await rig.router({ engines: [engine.url], config: { limits, timeouts, "forward-paths": ["/custom/*"] } });
});
afterAll(() => rig.close());

const path = "/v1/chat/completions";
const small = JSON.stringify(chat({ marker: "hidden" }));
const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const head = (...lines: readonly string[]): string =>
  `${[`POST ${path} HTTP/1.1`, "host: x", ...lines].join("\r\n")}\r\n\r\n`;
const statuses = (text: string): string[] => text.match(/HTTP\/1\.1 \d{3}/g)?.map((line) => line.slice(9)) ?? [];

/** Writes bytes, and gives what was answered until the other side closed. */
async function exchange(bytes: string): Promise<string> {
  const connection = await rawConnection(router.port);
  connection.write(Buffer.from(bytes, "latin1"));
  await connection.closed();
  return connection.received();
}

async function expectUnharmed(): Promise<void> {
  const answer = await post(`${router.url}${path}`, chat({ marker: "next" }));
  expect([answer.status, answer.json]).toEqual([200, { marker: "next", tenant: null }]);
}

describe("smuggling: two readers of the same bytes could disagree where a request ends", () => {
  /** Behind each, a second request is hidden that must not be taken for one. */
  const hidden = `GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n`;
  test.each<readonly [string, string]>([
    ["length and chunks", `${head("content-length: 4", "transfer-encoding: chunked")}0\r\n\r\n${hidden}`],
    ["chunks and length", `${head("transfer-encoding: chunked", "content-length: 4")}0\r\n\r\n${hidden}`],
    ["two lengths", `${head("content-length: 0", "content-length: 40")}${hidden}`],
    ["two equal lengths", `${head("content-length: 1", "content-length: 1")}{${hidden}`],
    ["a list of lengths", `${head("content-length: 0, 40")}${hidden}`],
    ["a signed length", `${head("content-length: +0")}${hidden}`],
    ["a length in hexadecimal", `${head("content-length: 0x2")}{}${hidden}`],
    ["a length beyond 64 bits", `${head("content-length: 18446744073709551617")}{${hidden}`],
    ["chunked twice", `${head("transfer-encoding: chunked, chunked")}0\r\n\r\n${hidden}`],
    ["an unknown coding behind chunked", `${head("transfer-encoding: chunked, identity")}0\r\n\r\n${hidden}`],
    ["chunked, misspelt", `${head("transfer-encoding: xchunked")}0\r\n\r\n${hidden}`],
    ["chunked behind a vertical tab", `${head("transfer-encoding: \x0bchunked")}0\r\n\r\n${hidden}`],
    ["a space before the colon", `${head("transfer-encoding : chunked")}0\r\n\r\n${hidden}`],
    ["a folded header", `${head("x-a: b", " transfer-encoding: chunked", "content-length: 0")}${hidden}`],
    ["a folded coding", `${head("transfer-encoding:", " chunked", "content-length: 5")}0\r\n\r\n${hidden}`],
    ["a bare line feed in the head", `POST ${path} HTTP/1.1\nhost: x\ncontent-length: 0\n\n${hidden}`],
    [
      "a bare carriage return in a header",
      `${head("x-a: b\rtransfer-encoding: chunked", "content-length: 0")}${hidden}`,
    ],
    ["a NUL in a header", `${head("x-a: b\0c", "content-length: 0")}${hidden}`],
    ["a chunk size that is none", `${head("transfer-encoding: chunked")}zz\r\n{}\r\n0\r\n\r\n${hidden}`],
    ["a negative chunk size", `${head("transfer-encoding: chunked")}-1\r\n{}\r\n0\r\n\r\n${hidden}`],
    ["a chunk size with 0x", `${head("transfer-encoding: chunked")}0x2\r\n{}\r\n0\r\n\r\n${hidden}`],
    [
      "a chunk size beyond 64 bits",
      `${head("transfer-encoding: chunked")}10000000000000000\r\n{}\r\n0\r\n\r\n${hidden}`,
    ],
    ["a length among the trailers", `${head("transfer-encoding: chunked")}0\r\ncontent-length: 5\r\n\r\n${hidden}`],
    ["a chunk longer than its size", `${head("transfer-encoding: chunked")}1\r\n{}\r\n0\r\n\r\n${hidden}`],
    ["a chunk that ends with a line feed", `${head("transfer-encoding: chunked")}2\n{}\n0\n\n${hidden}`],
    [
      "a chunk size that ends with a carriage return",
      `${head("transfer-encoding: chunked")}2\r{}\r\n0\r\n\r\n${hidden}`,
    ],
  ])("%s: refused, and the connection ends", async (_, bytes) => {
    const before = engine.requests.length;
    const text = await exchange(bytes);
    expect(statuses(text)).toEqual(["400"]);
    expect(engine.requests).toHaveLength(before);
    await expectUnharmed();
  });

  test("what is read as chunks goes to the engine with a length, and nothing of how it came", async () => {
    const connection = await rawConnection(router.port);
    const trailers = "0\r\nx-tenant: forged\r\n\r\n";
    connection.write(`${head("transfer-encoding: chunked", "trailer: x-tenant")}${chunk(small)}${trailers}`);
    expect(await connection.until(/\}$/)).toContain('{"marker":"hidden","tenant":null}');
    connection.socket.destroy();
    const { headers, body } = engine.requests.at(-1)!;
    expect(headers["transfer-encoding"]).toBeUndefined();
    expect([headers["content-length"], headers.trailer]).toEqual([String(body.length), undefined]);
    expect(body.toString()).toBe(small);
  });

  test("a whole request inside a body stays a body", async () => {
    const before = engine.requests.length;
    const inner = rawPost(path, small, ["x-tenant: forged"]);
    const answer = await post(`${router.url}${path}`, chat({ marker: inner }));
    expect(answer.json).toEqual({ marker: inner, tenant: null });
    expect(engine.requests).toHaveLength(before + 1);
  });

  test("a path with an escaped end of line reaches no engine as one", async () => {
    for (const odd of ["/custom/a%0d%0ax-tenant:%20forged", "/custom/%E5%98%8A%E5%98%8D", "/custom/a%00b"]) {
      await call(router.url, {
        method: "POST",
        path: odd,
        body: "{}",
        headers: { "content-type": "application/json" },
      });
      const { rawHeaders, path: seen } = engine.requests.at(-1)!;
      expect(rawHeaders.join("\n")).not.toContain("forged");
      expect(seen).toBe(odd);
    }
  });
});

describe("slow and endless clients", () => {
  const quickly = async (connection: RawConnection, startMs: number): Promise<void> => {
    await connection.closed();
    expect(performance.now() - startMs).toBeLessThan(10_000);
  };

  test.each<readonly [string, string]>([
    ["nothing at all", ""],
    ["half a request line", "POST /v1/ch"],
    ["headers without an end", `POST ${path} HTTP/1.1\r\nhost: x\r\n`],
    ["a body without an end", `${head("content-type: application/json", "content-length: 1000")}{"a"`],
    [
      "chunks without an end",
      `${head("content-type: application/json", "transfer-encoding: chunked")}${chunk('{"a"')}`,
    ],
  ])("%s: the connection ends when its time is up, also where bytes keep trickling in", async (_, bytes) => {
    const startMs = performance.now();
    const [still, trickling] = [await rawConnection(router.port), await rawConnection(router.port)];
    for (const connection of [still, trickling]) if (bytes !== "") connection.write(bytes);
    const trickle = setInterval(() => trickling.write(bytes === "" ? "" : "a"), 50);
    try {
      await Promise.all([quickly(still, startMs), quickly(trickling, startMs)]);
    } finally {
      clearInterval(trickle);
    }
    await expectUnharmed();
  });

  test("a body that never ends is refused at the limit", async () => {
    const connection = await rawConnection(router.port);
    const { socket } = connection;
    connection.write(head("content-type: application/json", "transfer-encoding: chunked"));
    const piece = chunk(" ".repeat(8_192));
    let sent = 0;
    while (!socket.destroyed && !socket.readableEnded && connection.received() === "" && sent < 64 * maxBodyBytes) {
      sent += piece.length;
      if (!socket.write(piece)) await Promise.race([once(socket, "drain"), once(socket, "close")]);
      await new Promise(setImmediate);
    }
    expect(await connection.until(/"code":"body_too_large"/)).toMatch(/^HTTP\/1\.1 413 /);
    await connection.closed();
    await router.untilIdle();
  });

  test("headers that never end are refused at the limit", async () => {
    const lines = Array.from({ length: 500 }, (_, at) => `x-${at}: ${"v".repeat(20)}\r\n`).join("");
    expect(await exchange(`POST ${path} HTTP/1.1\r\nhost: x\r\n${lines}`)).toMatch(/^HTTP\/1\.1 431 /);
  });

  test("a length beyond the limit is refused before a byte of it is waited for", async () => {
    const text = await exchange(head("content-type: application/json", "content-length: 9000000000000000"));
    expect(text).toMatch(/^HTTP\/1\.1 413 /);
  });
});

describe("bombs", () => {
  test.each(["gzip", "deflate", "br", "zstd", "x-gzip", "gzip, identity"])(
    "a body coded with %s is not unpacked",
    async (coding) => {
      const body = gzipSync(JSON.stringify(chat({ pad: "a".repeat(1_000_000) })));
      expect(body.length).toBeLessThan(maxBodyBytes);
      const headers = { "content-type": "application/json", "content-encoding": coding };
      const answer = await call(`${router.url}${path}`, { method: "POST", headers, body });
      expect([answer.status, answer.text]).toEqual([415, expect.stringContaining("unsupported_encoding")]);
    },
  );

  test.each<readonly [string, string]>([
    ["open brackets", "[".repeat(60_000)],
    ["open objects", '{"a":'.repeat(12_000)],
    ["closed brackets", `{"model":"tiny","x":${"[".repeat(30_000)}${"]".repeat(30_000)}}`],
    ["many keys", `{${Array.from({ length: 5_000 }, (_, at) => `"k${at}":1`).join(",")}}`],
    ["a long number", `{"model":"tiny","n":1${"0".repeat(60_000)}}`],
    ["long white space", `{"model":${" ".repeat(60_000)}`],
    ["escapes", `{"model":"${"\\u0061".repeat(10_000)}"}`],
  ])("%s: refused at once", async (_, body) => {
    const startMs = performance.now();
    const answer = await post(`${router.url}${path}`, body);
    expect(answer.status).toBe(400);
    expect(performance.now() - startMs).toBeLessThan(2_000);
    await expectUnharmed();
  });
});

test("under pipelining every answer is that of its own request, whatever the requests between them", async () => {
  const connection = await rawConnection(router.port);
  const bad = [rawPost(path, "{"), rawPost("/nowhere", "{}"), rawPost(path, JSON.stringify(chat({ model: "none" })))];
  const count = 60;
  const good = (at: number): string =>
    rawPost(path, JSON.stringify(chat({ marker: at })), at % 3 === 0 ? [`x-tenant: t${at}`] : []);
  connection.write(Array.from({ length: count }, (_, at) => (at % 4 === 3 ? bad[at % 3]! : good(at))).join(""));
  await waitFor(() => statuses(connection.received()).length === count && connection.received().endsWith("}"), {
    what: "every answer",
  });
  connection.socket.destroy();
  const markers = connection.received().match(/\{"marker":.*?\}/g);
  expect(markers).toEqual(
    Array.from({ length: count }, (_, at) => at)
      .filter((at) => at % 4 !== 3)
      .map((at) => JSON.stringify({ marker: at, tenant: at % 3 === 0 ? `t${at}` : null })),
  );
  await router.untilIdle();
});

test("ids and models with line ends and control characters stay inside their field of a log line and of an answer", async () => {
  const forged = 'x\r\n{"level":"error","msg":"forged"}\u001b[2J\u2028\0';
  const answer = await post(`${router.url}${path}`, chat({ model: forged }));
  expect(answer.status).toBe(404);
  expect(JSON.parse(answer.text).error.message).toContain("does not exist");
  expect(answer.text).not.toMatch(/[\r\n\0\u001b]/);
  const odd = await call(`${router.url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-request-id": 'a\tb{"level":1}' },
    body: small,
  });
  expect(odd.headers["x-request-id"]).toMatch(/^req-[0-9a-f]{24}$/);
  const metrics = await call(`${router.adminUrl}/metrics`);
  expect(metrics.text).not.toContain("forged");
});

describe("the admin listener", () => {
  test("paths of operators are not on the clients' port, in whatever spelling", async () => {
    for (const spelled of [
      "/admin/engines",
      "//admin/engines",
      "/%61dmin/engines",
      "/custom/../admin/engines",
      "/metrics",
    ]) {
      const answer = await call(router.url, { path: spelled });
      expect([spelled, answer.status]).toEqual([spelled, 404]);
    }
  });

  test.each<readonly [string, unknown]>([
    ["file", "file:///etc/passwd"],
    ["another scheme", "gopher://127.0.0.1:6379/_x"],
    ["credentials", "http://user:pass@127.0.0.1:1"],
    ["a query", "http://127.0.0.1:1/?x=1"],
    ["an end of line", "http://127.0.0.1:1/\r\nx: 1"],
    ["a fragment", "http://127.0.0.1:1/#x"],
    ["no text", { url: ["http://127.0.0.1:1"] }],
    ["an unknown key", { url: "http://127.0.0.1:1", headers: { a: "b" } }],
  ])("an engine by a URL with %s is refused", async (_, url) => {
    const answer = await router.admin("POST", "/admin/engines", typeof url === "string" ? { url } : url);
    expect([answer.status, (await router.engines()).length]).toEqual([400, 1]);
  });

  test("on the clients' port nobody can name an engine", async () => {
    const before = engine.requests.length;
    const headers = {
      "x-espalier-engine": "127.0.0.1:1",
      "x-target-worker": "http://127.0.0.1:1",
      forwarded: "host=a",
    };
    expect((await post(`${router.url}${path}`, chat(), headers)).headers["x-espalier-engine"]).toBe(engine.id);
    expect(engine.requests).toHaveLength(before + 1);
  });

  test("a body beyond its limit, or that is no JSON, is refused", async () => {
    const big = await router.admin("POST", "/admin/engines", { url: `http://127.0.0.1:1/${"a".repeat(70_000)}` });
    expect(big.status).toBe(413);
    const headers = { "content-type": "application/json" };
    const bad = await call(`${router.adminUrl}/admin/engines`, {
      method: "POST",
      headers,
      body: '{"__proto__":{"url":1}}',
    });
    expect(bad.status).toBe(400);
  });
});
