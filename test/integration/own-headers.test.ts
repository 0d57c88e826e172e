import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, errorOf, openPost, post } from "./client.ts";
import { httpEngine, jsonEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

// A tracestate went on beside a traceparent that the router had replaced: it told of a trace that was not there.
test("a tracestate goes on with the trace that it belongs to, and not with another one", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url] });
  const url = `${router.url}/v1/chat/completions`;
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  await post(url, chat(), { traceparent, tracestate: "vendor=1" });
  await post(url, chat(), { traceparent: "00-nonsense", tracestate: "vendor=1" });
  await post(url, chat(), { tracestate: "vendor=1" });
  expect(engine.requests.map(({ headers }) => headers.tracestate)).toEqual(["vendor=1", undefined, undefined]);
});

// A compressed stream has no events to be seen, so all of it was held back until its end.
test("a compressed stream passes as it comes, with nothing taken out", async () => {
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream", "content-encoding": "br" });
    response.write("no event in here");
  });
  const router = await rig.router({ engines: [engine.url] });
  const request = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  expect((await request.head).headers["content-encoding"]).toBe("br");
  await waitFor(() => request.received() === "no event in here", { what: "the first piece" });
  request.destroy();
  await router.untilIdle();
});

// A limit for the whole answer was built into the proxy, and nothing set it.
test("an answer that is not complete within timeouts.answer is ended, and the next one is in time", async () => {
  let isSlow = true;
  const engine = await httpEngine(rig, ({ response }) => {
    if (!isSlow) response.writeHead(200, { "content-type": "application/json" }).end("{}");
  });
  const router = await rig.router({ engines: [engine.url], config: { timeouts: { answer: "300ms" } } });
  const late = await post(`${router.url}/v1/chat/completions`, chat());
  expect([late.status, errorOf(late).code]).toEqual([504, "upstream_timeout"]);
  await waitFor(() => engine.requests[0]?.socket.destroyed, { what: "the end at the engine" });
  isSlow = false;
  expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(200);
});
