import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, errorOf, openPost, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

test("images and speech go to an engine of the model and count as load until their last byte", async () => {
  const audio = Buffer.from(Array.from({ length: 4_096 }, (_, at) => (at * 7) & 0xff));
  let finish: () => void = () => {};
  const engine = await httpEngine(
    rig,
    ({ path, response }) => {
      if (path === "/v1/images/generations") {
        response.writeHead(200, { "content-type": "application/json" }).end('{"data":[{"b64_json":"aGk="}]}');
        return;
      }
      response.writeHead(200, { "content-type": "audio/mpeg" }).write(audio);
      finish = () => response.end(audio);
    },
    { models: ["painter"] },
  );
  const other = await httpEngine(rig, ({ response }) => response.end(), { models: ["speaker"] });
  const config = { models: { aliases: { dalle: "painter" } } };
  const router = await rig.router({ engines: [engine.url, other.url], config });
  const image = await post(`${router.url}/v1/images/generations`, { model: "dalle", prompt: "a cat", n: 2 });
  expect([image.status, image.headers["x-espalier-engine"]]).toEqual([200, engine.id]);
  expect(JSON.parse(String(engine.requests[0]?.body))).toEqual({ model: "painter", prompt: "a cat", n: 2 });

  const speech = openPost(`${router.url}/v1/audio/speech`, { model: "painter", input: "hello", voice: "alloy" });
  expect((await speech.head).headers["content-type"]).toBe("audio/mpeg");
  await waitFor(() => speech.received() !== "", { what: "the first audio" });
  const loads = (await router.engines()).map(({ targets }) => targets[0]?.load.in_flight);
  expect(loads).toEqual([1, 0]);
  finish();
  expect((await speech.body).equals(Buffer.concat([audio, audio]))).toBe(true);
  await router.untilIdle();
  const metrics = await router.metrics();
  for (const endpoint of ["images", "speech"]) {
    expect(metrics.sum("espalier_requests_total", { endpoint, model: "painter", outcome: "answered" })).toBe(1);
  }
});

// Streams of other APIs than chats have no `[DONE]`: these counted as cut, and their engines as broken.
test("a stream of images that ends as OpenAI's does is whole", async () => {
  const event = (type: string) => `event: ${type}\ndata: ${JSON.stringify({ type, b64_json: "aGk=" })}\n\n`;
  const events = event("image_generation.partial_image") + event("image_generation.completed");
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).end(events);
  });
  const router = await rig.router({ engines: [engine.url] });
  for (let sent = 0; sent < 6; sent++) {
    const answer = await post(`${router.url}/v1/images/generations`, { model: "tiny", prompt: "x", stream: true });
    expect([answer.status, answer.text]).toEqual([200, events]);
  }
  await router.untilIdle();
  const labels = { endpoint: "images", outcome: "answered" };
  expect((await router.metrics()).sum("espalier_requests_total", labels)).toBe(6);
  expect((await router.engines())[0]?.breaker.state).toBe("closed");
});

test("a request without a text, or with a reserved field, is refused as elsewhere", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  for (const [path, body, code] of [
    ["/v1/images/generations", { model: "tiny" }, "missing_field"],
    ["/v1/audio/speech", { model: "tiny", prompt: "no" }, "missing_field"],
    ["/v1/audio/speech", { model: "tiny", input: "x", kv_transfer_params: {} }, "reserved_field"],
    ["/v1/images/generations", { model: "none", prompt: "x" }, "model_not_found"],
  ] as const) {
    const answer = await post(router.url + path, body);
    expect([path, errorOf(answer).code]).toEqual([path, code]);
  }
  expect((await call(`${router.url}/v1/audio/speech`)).status).toBe(405);
});
