import { createSeededRandom } from "@espalier/core";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { closed, httpEngine, namedEngine } from "./engines.ts";
import { createRig, send } from "./rig.ts";

test("an engine may take ten minutes to its first byte, and no longer; another one is not asked", async () => {
  const time = createVirtualTime();
  const engine = await httpEngine(() => {});
  const other = await namedEngine("b");
  const rig = await createRig({ engines: [engine.url, other.url], time });
  const answer = send(rig.port);
  await waitFor(() => engine.requests.length === 1, { what: "the request" });
  time.advance(599_800);
  expect(rig.outcomes).toEqual([]);
  time.advance(300);
  expect(await answer).toMatchObject({ status: 504 });
  expect(rig.events).toEqual(["start a 0", "fail a timeout"]);
  expect(rig.failures[0]).toMatchObject({ beforeFirstByte: true, error: { code: "upstream_timeout" } });
  await closed(engine.sockets[0]);
  expect(other.requests).toEqual([]);
});

test("headers without a body do not stop that clock, nor start the idle timeout", async () => {
  const time = createVirtualTime();
  const engine = await httpEngine(({ response }) => response.writeHead(200).flushHeaders());
  const options = { firstByteMs: 60_000, idleMs: 1_000 };
  const rig = await createRig({ engines: [engine.url], time, options });
  const answer = send(rig.port);
  await waitFor(() => engine.requests.length === 1, { what: "the request" });
  time.advance(59_800);
  expect(rig.outcomes).toEqual([]);
  time.advance(300);
  expect(await answer).toMatchObject({ status: 504 });
});

test("a request's own deadline ends it before the first byte, at no fault of the engine", async () => {
  const time = createVirtualTime();
  const engine = await httpEngine(() => {});
  const rig = await createRig({ engines: [engine.url], time, exchange: () => ({ deadlineMs: 30_000 }) });
  const answer = send(rig.port);
  await waitFor(() => engine.requests.length === 1, { what: "the request" });
  time.advance(29_900);
  expect(rig.outcomes).toEqual([]);
  time.advance(200);
  expect(await answer).toMatchObject({ status: 504 });
  expect(rig.failures).toEqual([]);
  await closed(engine.sockets[0]);
});

test("a request's own deadline cuts its stream", async () => {
  const time = createVirtualTime();
  const engine = await httpEngine(({ response }) =>
    response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n"),
  );
  const rig = await createRig({ engines: [engine.url], time, exchange: () => ({ deadlineMs: 30_000 }) });
  const answer = send(rig.port);
  await waitFor(() => rig.events.includes("byte a"), { what: "the first byte" });
  time.advance(30_100);
  expect((await answer).body.toString()).toMatch(/^data: 1\n\ndata: \{"error":.*"upstream_timeout".*\n\n$/);
  expect(await rig.outcome()).toMatchObject({ kind: "cut", error: { code: "upstream_timeout" } });
  expect(rig.failures).toEqual([]);
});

test("many limits at once: each request ends at its own, whatever the order", async () => {
  const time = createVirtualTime();
  const random = createSeededRandom(3);
  const engine = await httpEngine(() => {});
  const seconds = Array.from({ length: 30 }, () => 1 + random.integer(10));
  let index = 0;
  const rig = await createRig({
    engines: [engine.url],
    time,
    exchange: () => ({ deadlineMs: seconds[index++]! * 1_000 }),
  });
  const answers = seconds.map(() => send(rig.port));
  await waitFor(() => engine.requests.length === seconds.length, { what: "the requests" });
  time.advance(100);
  for (let second = 1; second <= 10; second++) {
    time.advance(1_000);
    expect(rig.proxy.activeStreams()).toBe(seconds.filter((own) => own > second).length);
  }
  expect((await Promise.all(answers)).every(({ status }) => status === 504)).toBe(true);
});

test("a stopped proxy leaves no timer", async () => {
  const time = createVirtualTime();
  const rig = await createRig({ engines: [], time });
  expect(time.pendingCount).toBe(1);
  await rig.proxy.stop();
  expect(time.pendingCount).toBe(0);
});
