import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, post, rawConnection, rawPost } from "./client.ts";
import { httpEngine, jsonEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

/*
 * A refusal of a large body reached few clients: the connection was closed with unread bytes in it, which resets it, so
 * that the client had EPIPE in place of the answer.
 */
const rig = createRig();
afterEach(() => rig.close());

const large = JSON.stringify(chat({ messages: [{ role: "user", content: "x".repeat(8_000_000) }] }));

/** What twenty clients read that send all of a body before they look for an answer. */
async function twenty(port: number, headers: readonly string[] = []): Promise<readonly string[]> {
  const answers: string[] = [];
  for (let at = 0; at < 20; at++) {
    const { socket, received } = await rawConnection(port);
    socket.pause();
    const sent = new Promise<void>((resolve) =>
      socket.write(rawPost("/v1/chat/completions", large, headers), () => resolve()),
    );
    await sent;
    socket.resume();
    await waitFor(() => /\}$/.test(received()) || socket.closed, { what: "an answer, or the end" });
    answers.push(/"code":"(\w+)"/.exec(received())?.[1] ?? "none");
    socket.destroy();
  }
  return answers;
}

test("each of twenty large bodies that are refused for length or key gets its answer, and the router serves on", async () => {
  const engine = await jsonEngine(rig, "{}");
  const keys = [{ name: "a", key: "key-of-a-1234567890" }];
  const config = { limits: { "max-body-bytes": "1MiB" }, "api-keys": keys };
  const router = await rig.router({ engines: [engine.url], config });
  const url = `${router.url}/v1/chat/completions`;
  const key = { authorization: "Bearer key-of-a-1234567890" };
  const withKey = [`authorization: ${key.authorization}`];
  expect(await twenty(router.port, withKey)).toEqual(Array(20).fill("body_too_large"));
  expect(await twenty(router.port)).toEqual(Array(20).fill("missing_api_key"));
  expect((await post(url, chat(), key)).status).toBe(200);
  await router.untilIdle();
});

test("a client that stops sending a refused body is let go of after its answer", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url], config: { limits: { "max-body-bytes": "1KiB" } } });
  const connection = await rawConnection(router.port);
  connection.write(
    "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\ncontent-length: 9000\r\n\r\nx",
  );
  await connection.until(/413 [\s\S]*body_too_large/);
  await connection.closed();
});

const head = (length: number, expect: string) =>
  `POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\nexpect: ${expect}\r\ncontent-length: ${length}\r\n\r\n`;

// Node said 100 Continue before the request was looked at, so that clients sent what was refused.
test("a client that asks whether to go on is told so once it is let in, and refused before it sends anything", async () => {
  const engine = await httpEngine(rig, ({ response }) => response.writeHead(200).end("{}"));
  const router = await rig.router({ engines: [engine.url], config: { limits: { "max-body-bytes": "1KiB" } } });
  const body = JSON.stringify(chat());
  const admitted = await rawConnection(router.port);
  admitted.write(head(body.length, "100-continue"));
  await admitted.until(/^HTTP\/1.1 100 Continue\r\n\r\n$/);
  admitted.write(body);
  await admitted.until(/HTTP\/1.1 200 /);
  const refused = await rawConnection(router.port);
  refused.write(head(9_000, "100-continue"));
  expect(await refused.until(/body_too_large/)).toMatch(/^HTTP\/1.1 413 /);
  await refused.closed();
});

// The body of a request that nobody serves was asked for, and read, before it was refused.
test.each([
  ["/v1/nothing", 404],
  ["/v1/models", 405],
])("a client that asks whether to go on at %s is refused with %i before it sends anything", async (path, status) => {
  const router = await rig.router();
  const connection = await rawConnection(router.port);
  connection.write(head(9_000, "100-continue").replace("/v1/chat/completions", path));
  await connection.closed();
  expect(connection.received()).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  const asked = ["-H", "expect: 100-continue", "-H", "content-type: application/json", "-d", "{}"];
  const { stdout } = await promisify(execFile)("curl", ["-sS", "-m", "20", "-i", ...asked, router.url + path]);
  expect(stdout).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
});

test("an expectation that is not known is refused with an error object", async () => {
  const router = await rig.router();
  const connection = await rawConnection(router.port);
  connection.write(head(2, "miracles"));
  expect(await connection.until(/expectation_failed/)).toMatch(/^HTTP\/1.1 417 /);
  await connection.closed();
});
