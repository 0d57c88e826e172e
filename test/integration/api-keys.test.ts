import { createHash } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { call, chat, errorOf, post, rawConnection } from "./client.ts";
import { type HttpEngine, jsonEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
let router: RunningRouter;
let engine: HttpEngine;

beforeAll(async () => {
  engine = await jsonEngine(rig, "{}");
  const config = {
    "api-keys": [
      { name: "plain", key: "key-of-team-a" },
      { name: "hashed", "key-sha256": createHash("sha256").update("key-of-team-b").digest("hex") },
    ],
    "forward-paths": ["/custom/*"],
  };
  router = await rig.router({ engines: [engine.url], config });
});
afterAll(() => rig.close());

const guarded: readonly (readonly [string, string])[] = [
  ["POST", "/v1/chat/completions"],
  ["POST", "/v1/completions"],
  ["POST", "/v1/embeddings"],
  ["POST", "/v1/responses"],
  ["POST", "/v1/rerank"],
  ["POST", "/score"],
  ["POST", "/generate"],
  ["POST", "/tokenize"],
  ["POST", "/detokenize"],
  ["GET", "/v1/models"],
  ["HEAD", "/v1/models"],
  ["GET", "/v1/models/tiny"],
  ["GET", "/v1/responses/resp_1"],
  ["DELETE", "/v1/responses/resp_1"],
  ["POST", "/v1/responses/resp_1/cancel"],
  ["GET", "/custom/anything"],
  ["GET", "/nothing/here"],
  ["PUT", "/v1/chat/completions"],
  ["OPTIONS", "/v1/models"],
];

test.each(guarded)("%s %s without a key: 401", async (method, path) => {
  const answer = await call(router.url + path, { method });
  expect(answer.status).toBe(401);
  if (method === "HEAD") return;
  expect(errorOf(answer)).toEqual({
    message: "The request carries no API key.",
    type: "authentication_error",
    param: null,
    code: "missing_api_key",
  });
});

test.each<Readonly<Record<string, string>>>([
  { authorization: "Bearer key-of-team-c" },
  { authorization: "Bearer key-of-team" },
  { authorization: "Bearer key-of-team-a2" },
  { "x-api-key": "KEY-OF-TEAM-A" },
  { authorization: "Bearer wrong", "x-api-key": "key-of-team-a" },
])("%j is refused: 401 invalid_api_key, unread", async (headers) => {
  const answer = await post(`${router.url}/v1/chat/completions`, "not even JSON", headers);
  expect([answer.status, errorOf(answer).code]).toEqual([401, "invalid_api_key"]);
});

test("a refused key reads in Anthropic's shape on /v1/messages", async () => {
  for (const headers of [{}, { "x-api-key": "wrong-key" }]) {
    const answer = await post(`${router.url}/v1/messages`, chat(), headers);
    expect([answer.status, answer.json]).toEqual([
      401,
      {
        type: "error",
        error: { type: "authentication_error", message: expect.any(String) },
        request_id: answer.headers["x-request-id"],
      },
    ]);
  }
  expect(engine.requests).toEqual([]);
});

test("a known key is let in, by either header, and the engine does not see it", async () => {
  const url = `${router.url}/v1/chat/completions`;
  const keys = [{ authorization: "Bearer key-of-team-a" }, { authorization: "bearer key-of-team-b" }];
  for (const headers of [...keys, { "x-api-key": "key-of-team-b" }]) {
    expect((await post(url, chat(), headers)).status).toBe(200);
    expect(engine.requests.at(-1)?.headers.authorization).toBeUndefined();
    expect(engine.requests.at(-1)?.headers["x-api-key"]).toBeUndefined();
  }
});

test("probes need no key", async () => {
  for (const path of ["/livez", "/readyz", "/health"]) expect((await call(router.url + path)).status).toBe(200);
});

test("the body of a refused request is not waited for", async () => {
  const connection = await rawConnection(router.port);
  connection.write("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{");
  const text = await connection.until(/"code":"missing_api_key"/);
  expect(text).toMatch(/^HTTP\/1\.1 401 [\s\S]*\r\nconnection: close\r\n/i);
  await connection.closed();
});
