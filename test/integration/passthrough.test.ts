import { afterEach, expect, test } from "vitest";
import { call, chat, openPost, post } from "./client.ts";
import { httpEngine, jsonEngine } from "./engines.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Bodies that only bytes can carry: integers of 64 bits, odd white space, unknown fields, escapes, odd numbers. */
const oddities = ` "seed" :  9223372036854775807,\r\n\t"logit_bias":{"1":-1.50e+01}, "x_unknown":[1 ,2,{"é":"\\u00e9\\/\\ud83d\\ude00"}],"n":1`;

const endpoints: readonly (readonly [path: string, fields: string])[] = [
  ["/v1/chat/completions", '"model":"tiny","messages":[{"role":"user","content":"hi"}]'],
  ["/v1/completions", '"model":"tiny","prompt":"hi"'],
  ["/v1/embeddings", '"model":"tiny","input":"hi"'],
  ["/v1/responses", '"model":"tiny","input":"hi"'],
  ["/v1/rerank", '"model":"tiny","query":"q","documents":["a","b"]'],
  ["/rerank", '"query":"q","documents":["a","b"]'],
  ["/v2/rerank", '"query":"q","documents":["a","b"]'],
  ["/v1/score", '"text_1":"a","text_2":"b"'],
  ["/score", '"model":"tiny","text_1":"a","text_2":"b"'],
  ["/v1/messages", '"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":"hi"}]'],
  ["/generate", '"text":"hi","sampling_params":{"max_new_tokens":4}'],
  ["/tokenize", '"prompt":"hi"'],
  ["/detokenize", '"tokens":[1,2,3]'],
];

test.each(endpoints)("POST %s passes on with the very bytes, both ways", async (path, fields) => {
  const reply = '{ "id":12345678901234567890,"object" : "x" }\n';
  const engine = await jsonEngine(rig, reply);
  const router = await rig.router({ engines: [engine.url] });
  const body = `  {${fields},${oddities}}\n `;

  const answer = await post(`${router.url}${path}?trace=1&x=%20`, body);

  expect(answer.status).toBe(200);
  expect(answer.text).toBe(reply);
  expect(answer.headers["content-length"]).toBe(String(reply.length));
  expect(answer.headers["transfer-encoding"]).toBeUndefined();
  expect(engine.requests).toHaveLength(1);
  expect(engine.requests[0]).toMatchObject({ method: "POST", path: `${path}?trace=1&x=%20` });
  expect(engine.requests[0]?.body.toString()).toBe(body);
  expect(engine.requests[0]?.headers["content-length"]).toBe(String(Buffer.byteLength(body)));
});

test("a body in chunks, and one without a content type, arrive whole", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url] });
  const body = JSON.stringify(chat({ x: "y".repeat(200_000) }));

  const chunked = await call(`${router.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json; charset=utf-8", "transfer-encoding": "chunked" },
    body,
  });
  const untyped = await call(`${router.url}/v1/chat/completions`, { method: "POST", body });
  const suffixed = await post(`${router.url}/v1/chat/completions`, body, {
    "content-type": "application/vnd.api+json",
    "content-encoding": "identity",
  });

  expect([chunked.status, untyped.status, suffixed.status]).toEqual([200, 200, 200]);
  expect(engine.requests.map((request) => request.body.toString())).toEqual([body, body, body]);
});

test("an alias changes nothing but the model's name", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url], config: { models: { aliases: { "gpt-4": "tiny" } } } });
  const before = `{${oddities}, "model" : `;
  const after = ` ,"messages":[{"role":"user","content":"say \\"model\\": \\"gpt-4\\""}]}`;

  await post(`${router.url}/v1/chat/completions`, `${before}"gpt-4"${after}`);

  expect(engine.requests[0]?.body.toString()).toBe(`${before}"tiny"${after}`);
});

test("a stream arrives byte for byte, however the engine cut it", async () => {
  const frames = [
    ': comment\r\n\r\ndata: {"a":1}\n\n',
    'event: x\nid: 7\ndata: {"choices":[{"delta":{"content":"é"}}]}\n\n',
    "data: {\n",
    'data: "two": "lines"}\n\n',
    "data: [DONE]\n\n",
  ];
  const bytes = Buffer.from(frames.join(""));
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
    for (let at = 0; at < bytes.length; at += 7) response.write(bytes.subarray(at, at + 7));
    response.end();
  });
  const router = await rig.router({ engines: [engine.url], config: { "inject-usage": false } });
  const body = JSON.stringify(chat({ stream: true }));

  const answer = await post(`${router.url}/v1/chat/completions`, body);

  expect(answer.status).toBe(200);
  expect(answer.headers["content-type"]).toBe("text/event-stream; charset=utf-8");
  expect(answer.headers["content-length"]).toBeUndefined();
  expect(answer.body.equals(bytes)).toBe(true);
  expect(engine.requests[0]?.body.toString()).toBe(body);
});

test("a chunk of a stream is passed on when it comes, not when the next one does", async () => {
  let finish = (): void => {};
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('data: {"first":1}\n\n');
    finish = () => response.end("data: [DONE]\n\n");
  });
  const router = await rig.router({ engines: [engine.url] });

  const stream = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  const head = await stream.head;
  await new Promise((resolve) => head.once("data", resolve));
  expect(stream.received()).toBe('data: {"first":1}\n\n');
  finish();
  expect((await stream.body).toString()).toBe('data: {"first":1}\n\ndata: [DONE]\n\n');
});

test.each([201, 400, 404, 422, 500])("an engine's own status %i and its body pass unchanged", async (status) => {
  const body = '{"error":{"message":"the engine\'s own","type":"BadRequestError","code":7}}';
  const engine = await httpEngine(rig, ({ response }) => {
    response.writeHead(status, { "content-type": "application/json", "x-engine": "yes" }).end(body);
  });
  const router = await rig.router({ engines: [engine.url] });

  const answer = await post(`${router.url}/v1/chat/completions`, chat());

  expect(answer.status).toBe(status);
  expect(answer.text).toBe(body);
  expect(answer.headers["x-engine"]).toBe("yes");
  expect(answer.headers["x-espalier-attempts"]).toBe("1");
  expect(engine.requests).toHaveLength(1);
});

test("an answer without a body stays without one", async () => {
  const engine = await httpEngine(rig, ({ response }) => response.writeHead(204).end());
  const router = await rig.router({ engines: [engine.url] });
  const answer = await post(`${router.url}/v1/chat/completions`, chat());
  expect([answer.status, answer.body.length]).toEqual([204, 0]);
  expect(answer.headers["content-length"]).toBeUndefined();
});

test("a path with a slash at its end reaches the engine without it", async () => {
  const engine = await jsonEngine(rig, "{}");
  const router = await rig.router({ engines: [engine.url] });
  expect((await post(`${router.url}/v1/chat/completions/?x=1`, chat())).status).toBe(200);
  expect(engine.requests[0]?.path).toBe("/v1/chat/completions?x=1");
});
