import type { EspalierError } from "@espalier/core";
import { expect, onTestFinished, test, vi } from "vitest";
import { askAdmin } from "../src/cli/admin-client.ts";
import { temporaryAdmin, temporaryServer } from "./temporary.ts";

test("a question is a GET, with the key when there is one; a slash after the address does no harm", async () => {
  const { admin, seen } = await temporaryAdmin('{"ready":true}', 200);
  expect(await askAdmin({ admin: `${admin}/`, key: "secret" }, "/admin/status")).toEqual({ ready: true });
  await askAdmin({ admin }, "/admin/status");
  expect(seen.map(({ method, path, headers }) => [method, path, headers.authorization])).toEqual([
    ["GET", "/admin/status", "Bearer secret"],
    ["GET", "/admin/status", undefined],
  ]);
});

test("what is sent is JSON, as it is written, with headers beside it but for the key's", async () => {
  const { admin, seen } = await temporaryAdmin("{}", 200);
  await askAdmin({ admin }, "/admin/engines/a", { method: "PATCH", json: '{"draining": true}' });
  const headers = { "x-session-id": "s", authorization: "Bearer of somebody else", "content-type": "text/plain" };
  await askAdmin({ admin, key: "secret" }, "/admin/explain", { method: "POST", json: "{}", headers });
  expect(seen).toMatchObject([
    { method: "PATCH", body: '{"draining": true}', headers: { "content-type": "application/json" } },
    {
      method: "POST",
      body: "{}",
      headers: { "content-type": "application/json", "x-session-id": "s", authorization: "Bearer secret" },
    },
  ]);
});

// Every refusal used to be called `bad_request`, with the advice to send well-formed HTTP.
test.each([
  ["engine_not_found", 404, '{"error":{"message":"No engine has this id.","code":"engine_not_found"}}'],
  ["invalid_api_key", 401, '{"error":{"message":"No.","code":"invalid_api_key"}}'],
  ["upstream_protocol_error", 404, '{"error":{"message":"Not Found","code":"some_code_of_others"}}'],
  ["upstream_protocol_error", 404, '{"error":{"message":"Not Found","code":"toString"}}'],
  ["upstream_protocol_error", 500, "<html>"],
  ["upstream_protocol_error", 500, "null"],
])("a refusal is the error %s that the router named, if it is one of its own (%i %s)", async (code, status, body) => {
  const { admin } = await temporaryAdmin(body, status);
  await expect(askAdmin({ admin }, "/admin/engines")).rejects.toMatchObject({
    code,
    message: expect.stringContaining(`The router at ${admin} answered ${status}: `),
  });
});

test.each(["http://127.0.0.1:1", "nonsense"])(
  "where no router answers, the error says how to name another: %s",
  async (admin) => {
    await expect(askAdmin({ admin }, "/admin/status")).rejects.toMatchObject({
      code: "upstream_connect_failed",
      message: `No router answers at ${admin}. Start it, or set --admin to its address.`,
    });
  },
);

// The catalogue advised to check the engine's address, and clients to use another API key.
test.each([
  ["nobody listens", "upstream_connect_failed", /espalier serve/, () => "http://127.0.0.1:1"],
  ["the key is missing", "invalid_api_key", /--key or ESPALIER_ADMIN_KEY/, refusing],
  ["it has no such engine", "engine_not_found", /`espalier engines`/, without],
  ["another program listens", "upstream_protocol_error", /a router's admin listener/, other],
])("the advice is about the router where %s", async (_, code, action, start) => {
  await expect(askAdmin({ admin: await start() }, "/admin/status")).rejects.toMatchObject({
    code,
    action: expect.stringMatching(action),
  });
});

test("a router that is slow is said to be slow itself, not its engines", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "setInterval", "performance", "Date"] });
  onTestFinished(() => void vi.useRealTimers());
  const asked = askAdmin({ admin: await temporaryServer(() => {}) }, "/admin/status").catch((error: unknown) => error);
  await vi.advanceTimersByTimeAsync(20_000);
  const error = (await asked) as EspalierError;
  expect(error).toMatchObject({ code: "upstream_timeout", message: expect.stringMatching(/^The router at .* 5 s\.$/) });
  expect(error.action).not.toMatch(/first-byte|engine/);
});

async function refusing(): Promise<string> {
  return (await temporaryAdmin({ error: { message: "No.", code: "invalid_api_key" } }, 401)).admin;
}

async function without(): Promise<string> {
  return (await temporaryAdmin({ error: { message: "No.", code: "engine_not_found" } }, 404)).admin;
}

async function other(): Promise<string> {
  return (await temporaryAdmin("<html>", 404)).admin;
}
