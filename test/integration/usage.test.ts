import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, eventData, type Json, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const usageEvent =
  'data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":2,' +
  '"total_tokens":13,"prompt_tokens_details":{"cached_tokens":8}}}\n\n';
const textEvents =
  'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n' +
  'data: {"id":"c","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}\n\n';
const done = "data: [DONE]\n\n";

/** An engine that reports usage as vLLM does: at the end of a stream, when asked. */
function vllmLike() {
  return httpEngine(rig, ({ body, response }) => {
    const asked = (JSON.parse(body.toString()) as { stream_options?: { include_usage?: boolean } }).stream_options;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(textEvents + (asked?.include_usage ? usageEvent : "") + done);
  });
}

async function tokens(router: RunningRouter): Promise<number[]> {
  const page = await waitFor(
    async () => {
      const read = await router.metrics();
      return read.sum("espalier_requests_total") > 0 && read;
    },
    { what: "finished request in the metrics" },
  );
  return ["prompt", "cached", "completion"].map((kind) => page.sum("espalier_tokens_total", { model: "tiny", kind }));
}

test.each<readonly [string, string, string]>([
  [
    "without stream_options",
    '{"model":"tiny","messages":[{"role":"user","content":"x"}],"stream":true}',
    '{"stream_options":{"include_usage":true},"model":"tiny","messages":[{"role":"user","content":"x"}],"stream":true}',
  ],
  [
    "with other stream_options",
    '{"stream_options": { "x": 1 } ,"stream":true,"model":"tiny","messages":[{"role":"user","content":"x"}]}',
    '{"stream_options": {"include_usage":true, "x": 1 } ,"stream":true,"model":"tiny","messages":[{"role":"user","content":"x"}]}',
  ],
  [
    "that says no to usage",
    '{"stream":true,"stream_options":{"include_usage":false},"model":"tiny","messages":[{"role":"user","content":"x"}]}',
    '{"stream":true,"stream_options":{"include_usage":true},"model":"tiny","messages":[{"role":"user","content":"x"}]}',
  ],
])("a stream %s is counted, and its client sees no usage", async (_, sent, arrived) => {
  const engine = await vllmLike();
  const router = await rig.router({ engines: [engine.url] });

  const answer = await post(`${router.url}/v1/chat/completions`, sent);

  expect(engine.requests[0]?.body.toString()).toBe(arrived);
  expect(answer.text).toBe(textEvents + done);
  expect(await tokens(router)).toEqual([11, 8, 2]);
});

test("a client that asks for usage gets it, and nothing of its body is touched", async () => {
  const engine = await vllmLike();
  const router = await rig.router({ engines: [engine.url] });
  const body =
    '{"model":"tiny", "messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true}}';

  const answer = await post(`${router.url}/v1/chat/completions`, body);

  expect(engine.requests[0]?.body.toString()).toBe(body);
  expect(answer.text).toBe(textEvents + usageEvent + done);
  expect(await tokens(router)).toEqual([11, 8, 2]);
});

test("with inject-usage off the router asks for nothing", async () => {
  const engine = await vllmLike();
  const router = await rig.router({ engines: [engine.url], config: { "inject-usage": false } });
  const body = JSON.stringify(chat({ stream: true }));

  const answer = await post(`${router.url}/v1/chat/completions`, body);

  expect(engine.requests[0]?.body.toString()).toBe(body);
  expect(answer.text).toBe(textEvents + done);
  expect(await tokens(router)).toEqual([0, 0, 0]);
});

test("a usage event of an Anthropic stream is no news to its client and stays", async () => {
  const stream =
    'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":0}}}\n\n' +
    'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"output_tokens":3}}\n\n' +
    'event: message_stop\ndata: {"type":"message_stop"}\n\n';
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).end(stream);
  });
  const router = await rig.router({ engines: [engine.url] });
  const body = JSON.stringify(chat({ stream: true }));

  const answer = await post(`${router.url}/v1/messages`, body);

  expect(engine.requests[0]?.body.toString()).toBe(body);
  expect(answer.text).toBe(stream);
  expect(await tokens(router)).toEqual([5, 0, 3]);
});

test("simulated engines: usage of streams and of whole answers is counted alike", async () => {
  const sims = await rig.sims(1);
  const router = await rig.router({ engines: sims.map(({ url }) => url) });
  const url = `${router.url}/v1/chat/completions`;

  const whole = (await post(url, chat())).json.usage as Json;
  const silent = eventData((await post(url, chat({ stream: true }))).text);
  const asked = eventData((await post(url, chat({ stream: true, stream_options: { include_usage: true } }))).text);

  const usages = (events: readonly string[]) =>
    events.filter((data) => data !== "[DONE]" && (JSON.parse(data) as Json).usage);
  expect(silent.at(-1)).toBe("[DONE]");
  expect(asked.at(-1)).toBe("[DONE]");
  expect(usages(silent)).toEqual([]);
  expect(usages(asked)).toHaveLength(1);
  await router.untilIdle();
  const page = await router.metrics();
  expect(page.sum("espalier_tokens_total", { kind: "prompt" })).toBe(3 * Number(whole.prompt_tokens));
  expect(page.sum("espalier_tokens_total", { kind: "completion" })).toBe(3 * 3);
});

/*
 * An engine that is asked for usage moves its fingerprint from the last chunk to the one of usage, which the client did not ask
 * for and does not get.
 */
test.each([
  ["/v1/chat/completions", "vllm"],
  ["/v1/completions", "vllm"],
  ["/v1/chat/completions", "sglang"],
  ["/v1/completions", "sglang"],
] as const)("a stream of %s by %s is the same as without the router", async (path, flavour) => {
  const [sim] = await rig.sims(1, { parameters: { flavour } });
  const router = await rig.router({ engines: [sim!.url] });
  const body = { ...chat({ stream: true, max_tokens: 3, seed: 1 }), prompt: "x" };
  const read = async (url: string): Promise<string> => {
    const { text } = await post(`${url}${path}`, body);
    return text.replace(/"id":"[^"]+"/g, '"id":"c"').replace(/"created":\d+/g, '"created":1');
  };

  const direct = await read(sim!.url);
  expect(direct.includes("system_fingerprint")).toBe(flavour === "vllm");
  expect(await read(router.url)).toBe(direct);
});

test("what else llama.cpp has in its chunk of usage reaches the client in the last chunk", async () => {
  const timings = ',"timings":{"prompt_ms":12345678901234567890,"unit":"\u00b5s"}';
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(textEvents + usageEvent.replace("}}}\n", `}}${timings}}\n`) + done);
  });
  const router = await rig.router({ engines: [engine.url] });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  expect(answer.text).toBe(textEvents.replace(/\}\n\n$/, () => `${timings}}\n\n`) + done);
  expect(await tokens(router)).toEqual([11, 8, 2]);
});

test("a stream that is cut behind its last chunk gives that chunk, and then the error", async () => {
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(textEvents, () => response.destroy());
  });
  // Else the router completes it, since it lacks nothing but its end.
  const router = await rig.router({ engines: [engine.url], config: { resume: { max: 0 } } });
  const answer = await post(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  expect(answer.text.startsWith(`${textEvents}data: {"error"`)).toBe(true);
  await router.untilIdle();
});
