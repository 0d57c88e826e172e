import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import type { SideRequest } from "../../src/proxy/index.ts";
import { attemptRig, sentOnce } from "./attempt-rig.ts";
import { httpEngine } from "./engines.ts";

const requestTo = (url: string, changes: Partial<SideRequest> = {}): SideRequest => ({
  ...{ method: "POST", path: "/v1/x?y=1", headers: ["X-Client", "c", "traceparent", "t"] },
  ...{ body: [Buffer.from("a"), Buffer.from("b")], resends: sentOnce },
  ...{ upstream: { url: `${url}/prefix`, headers: ["authorization", "Bearer engine"] }, keptBytes: 100 },
  ...changes,
});

test("it goes out like a client's own, and its answer is collected", async () => {
  let seen: unknown;
  const engine = await httpEngine(({ method, path, body, headers, response }) => {
    const { "x-client": client, authorization, traceparent } = headers;
    seen = [method, path, body.toString(), client, authorization, traceparent];
    response.writeHead(201).write("one ");
    response.end("two");
  });
  const { proxy } = await attemptRig();
  const outcome = await proxy.sendSide(requestTo(engine.url)).outcome;
  expect(outcome).toEqual({ kind: "answered", status: 201, body: Buffer.from("one two") });
  expect(seen).toEqual(["POST", "/prefix/v1/x?y=1", "ab", "c", "Bearer engine", "t"]);
});

test.each([
  [100, 100],
  [100, 101],
  [0, 50_000],
])("of an answer no more than %d bytes are kept: one of %d", async (keptBytes, size) => {
  const engine = await httpEngine(({ response }) => response.end(Buffer.alloc(size, "x")));
  const { proxy } = await attemptRig();
  const outcome = await proxy.sendSide(requestTo(engine.url, { keptBytes })).outcome;
  expect(outcome).toMatchObject({ kind: "answered", status: 200 });
  expect(outcome.kind === "answered" && outcome.body?.length).toBe(size <= keptBytes ? size : undefined);
});

test("an engine that closes, one that is not there, and one that is no engine", async () => {
  const engine = await httpEngine(({ response }) => response.destroy());
  const { proxy } = await attemptRig();
  expect(await proxy.sendSide(requestTo(engine.url)).outcome).toMatchObject({ kind: "failed", failure: "reset" });
  expect(await proxy.sendSide(requestTo("http://127.0.0.1:1")).outcome).toMatchObject({
    ...{ kind: "failed", failure: "connect" },
  });
  expect(await proxy.sendSide(requestTo("ftp://a")).outcome).toMatchObject({ kind: "failed", failure: "connect" });
});

test("cancelled, it ends at the engine at once; after its end nothing changes", async () => {
  let closed = false;
  const engine = await httpEngine(({ response }) => {
    response.write("x");
    response.on("close", () => {
      closed = true;
    });
  });
  const { proxy } = await attemptRig();
  const call = proxy.sendSide(requestTo(engine.url));
  await waitFor(() => engine.requests.length > 0, { what: "a request" });
  call.cancel();
  expect(await call.outcome).toEqual({ kind: "cancelled" });
  await waitFor(() => closed, { what: "the end at the engine" });
  call.cancel();
  expect(await call.outcome).toEqual({ kind: "cancelled" });
});

test("it ends with the proxy, and there is room for as many as for a client's", async () => {
  const engine = await httpEngine(() => {});
  const { proxy } = await attemptRig({ options: { maxConnectionsPerEngine: 1, maxQueuedPerEngine: 1 } });
  const calls = [1, 2, 3].map(() => proxy.sendSide(requestTo(engine.url)));
  expect(await calls[2]!.outcome).toMatchObject({ kind: "failed", failure: "overloaded" });
  await proxy.stop();
  expect(await Promise.all(calls.slice(0, 2).map(({ outcome }) => outcome))).toEqual([
    { kind: "cancelled" },
    { kind: "cancelled" },
  ]);
});

test("an engine that is silent for too long", async () => {
  const time = createVirtualTime();
  const engine = await httpEngine(() => {});
  const { proxy } = await attemptRig({ time, options: { firstByteMs: 5_000 } });
  const call = proxy.sendSide(requestTo(engine.url));
  await waitFor(() => engine.requests.length > 0, { what: "a request" });
  await time.advance(5_300);
  expect(await call.outcome).toMatchObject({ kind: "failed", failure: "timeout" });
});
