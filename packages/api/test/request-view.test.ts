import { expect, test } from "vitest";
import { type Endpoint, endpoints } from "../src/index.ts";
import {
  anthropic,
  bytesOf,
  chat,
  completions,
  endpointAt,
  errorOf,
  generate,
  responses,
  smallChat,
  viewOf,
} from "./helpers.ts";

test("a small chat body gives a view with the defaults of all that it does not say", () => {
  const view = viewOf(chat, smallChat);
  expect(view).toMatchObject({
    endpoint: chat,
    model: "m",
    adapter: undefined,
    stream: false,
    canAddUsage: false,
    promptBytes: 5,
    unreadPrompt: undefined,
    maxOutputTokens: undefined,
    choices: 1,
    bodySession: { user: undefined, session_id: undefined, prompt_cache_key: undefined },
    priority: undefined,
    serviceTier: undefined,
    previousResponseId: undefined,
  });
  expect(view.body.fields).toEqual(smallChat);
});

test("a chat body that says everything is read in full", () => {
  const view = viewOf(chat, {
    ...smallChat,
    stream: true,
    stream_options: { include_usage: true },
    lora_path: "a",
    max_tokens: 7,
    n: 3,
    user: "u",
    session_id: "s",
    prompt_cache_key: "k",
    priority: -2,
    service_tier: "flex",
  });
  expect(view).toMatchObject({
    stream: true,
    canAddUsage: false,
    adapter: "a",
    maxOutputTokens: 7,
    choices: 3,
    bodySession: { user: "u", session_id: "s", prompt_cache_key: "k" },
    priority: -2,
    serviceTier: "flex",
  });
});

test("null stands for absent in every optional field", () => {
  const nulls = Object.fromEntries(
    [
      "stream",
      "stream_options",
      "lora_path",
      "max_tokens",
      "max_completion_tokens",
      "n",
      "user",
      "session_id",
      "priority",
    ].map((name) => [name, null]),
  );
  const { body: _, spans: __, ...view } = viewOf(chat, { ...smallChat, ...nulls });
  const { body: ___, spans: ____, ...plain } = viewOf(chat, smallChat);
  expect(view).toEqual(plain);
});

const minimal: Readonly<Record<string, object>> = {
  chat: smallChat,
  completions: { model: "m", prompt: "hello" },
  embeddings: { model: "m", input: "hello" },
  responses: { model: "m", input: "hello" },
  rerank: { query: "q", documents: ["a", "b"] },
  score: { text_1: "a", text_2: ["b"] },
  messages: { model: "m", max_tokens: 5, messages: [{ role: "user", content: "hello" }] },
  count_tokens: { model: "m", messages: [{ role: "user", content: "hello" }] },
  generate: { text: "hello" },
  token_generate: { token_ids: [1, 2] },
  tokenize: { prompt: "hello" },
  detokenize: { tokens: [1, 2] },
  images: { model: "m", prompt: "a cat" },
  speech: { model: "m", input: "hello", voice: "alloy" },
};

test.each(endpoints.map((endpoint) => [endpoint.path, endpoint] as const))(
  "%s takes its smallest body",
  (_, endpoint) => {
    const view = viewOf(endpoint, minimal[endpoint.id]);
    expect(view.endpoint).toBe(endpoint);
    expect(view.body.fields).toEqual(minimal[endpoint.id]);
  },
);

test.each(endpoints.map((endpoint) => [endpoint.path, endpoint] as const))(
  "%s reads stream only where it answers with a stream",
  (_, endpoint) => {
    expect(viewOf(endpoint, { ...minimal[endpoint.id], stream: true }).stream).toBe(endpoint.streams);
  },
);

test.each(endpoints.map((endpoint) => [endpoint.path, endpoint] as const))(
  "%s lets usage be added only where it is otherwise left out of a stream",
  (_, endpoint) => {
    const body = { ...minimal[endpoint.id], stream: true };
    expect(viewOf(endpoint, body).canAddUsage).toBe(endpoint.usageInjectable);
    expect(viewOf(endpoint, { ...body, stream: false }).canAddUsage).toBe(false);
    expect(viewOf(endpoint, { ...body, stream_options: { include_usage: true } }).canAddUsage).toBe(false);
  },
);

test.each([
  ["absent", {}, true],
  ["null", { stream_options: null }, true],
  ["an empty object", { stream_options: {} }, true],
  ["include_usage null", { stream_options: { include_usage: null } }, true],
  ["include_usage false", { stream_options: { include_usage: false } }, true],
  ['include_usage "off"', { stream_options: { include_usage: "off" } }, true],
  ["include_usage true", { stream_options: { include_usage: true } }, false],
  ["include_usage 1", { stream_options: { include_usage: 1 } }, false],
  ['include_usage "yes"', { stream_options: { include_usage: "yes" } }, false],
  // vLLM adds usage to every chunk then, as soon as it adds it at the end.
  ["continuous statistics alone", { stream_options: { continuous_usage_stats: true } }, false],
  ["continuous statistics off", { stream_options: { continuous_usage_stats: false } }, true],
  ["of an unknown layout", { stream_options: [] }, false],
  ["a word", { stream_options: "all" }, false],
])("stream_options %s: whether usage can be added", (_, fields, expected) => {
  expect(viewOf(chat, { ...smallChat, stream: true, ...fields }).canAddUsage).toBe(expected);
});

// Clients send numbers as strings and booleans as words, which vLLM and SGLang take. The router refused them.
test.each<[string, Endpoint, object, object]>([
  [
    "numbers as strings",
    chat,
    { max_tokens: "16", n: "2", priority: "-3" },
    { maxOutputTokens: 16, choices: 2, priority: -3 },
  ],
  ["numbers with a fraction of zeros", chat, { max_tokens: 16.0, n: "2.0" }, { maxOutputTokens: 16, choices: 2 }],
  ["stream as a word", chat, { stream: "true" }, { stream: true, canAddUsage: false }],
  ["stream as a word for false", chat, { stream: "false" }, { stream: false }],
  ["stream as a number", chat, { stream: 1 }, { stream: true }],
  ["no limit, as llama.cpp writes it", chat, { max_tokens: -1 }, { maxOutputTokens: undefined }],
  ["a limit that cannot be read", chat, { max_tokens: {} }, { maxOutputTokens: undefined }],
  [
    "the older limit, when the newer cannot be read",
    chat,
    { max_completion_tokens: [], max_tokens: 5 },
    { maxOutputTokens: 5 },
  ],
  ["choices that no engine takes", chat, { n: 0 }, { choices: 1 }],
  ["choices that cannot be read", chat, { n: "many" }, { choices: 1 }],
  ["a priority that cannot be read", chat, { priority: "high" }, { priority: Number.NaN }],
  ["sessions of other types", chat, { user: 17, session_id: {}, prompt_cache_key: [] }, { bodySession: {} }],
  ["metadata of another type", anthropic, { metadata: "x", max_tokens: "9" }, { maxOutputTokens: 9 }],
  ["a user id of another type", anthropic, { metadata: { user_id: 5 } }, { bodySession: {} }],
  ["a previous response of another type", responses, { previous_response_id: 5 }, { previousResponseId: undefined }],
  ["a batch of adapters", generate, { lora_path: ["a", null] }, { adapter: undefined }],
  [
    "sampling parameters as strings",
    generate,
    { sampling_params: { max_new_tokens: "9", n: "2" } },
    { maxOutputTokens: 9, choices: 2 },
  ],
  [
    "sampling parameters of another type",
    generate,
    { sampling_params: [5] },
    { maxOutputTokens: undefined, choices: 1 },
  ],
])("values of other types are read as engines read them, or left to them: %s", (_, endpoint, fields, expected) => {
  expect(viewOf(endpoint, { ...minimal[endpoint.id], ...fields })).toMatchObject(expected);
});

test.each([
  ["absent", {}],
  ["null", { model: null }],
  ["empty", { model: "" }],
])("a model that is %s is none", (_, fields) => {
  expect(viewOf(chat, { messages: [{}], ...fields }).model).toBeUndefined();
});

test.each<[string, Endpoint, string, unknown]>([
  ["messages as a text", chat, "messages", "hello"],
  ["messages as one object", chat, "messages", { role: "user" }],
  ["no messages", chat, "messages", []],
  ["a message that is a text", chat, "messages", ["hello"]],
  ["a message that is null", chat, "messages", [{}, null]],
  ["a content that is a number", chat, "messages", [{ content: 5 }]],
  ["a content that is an object", chat, "messages", [{}, { content: { text: "a" } }]],
  ["a prompt that is a number", completions, "prompt", 5],
  ["no prompts", completions, "prompt", []],
  ["an empty prompt of tokens", completions, "prompt", [[1], true]],
  ["texts and tokens mixed", completions, "prompt", [1, "a"]],
  ["a negative token", completions, "prompt", [1, -1]],
  ["a token with a fraction", completions, "prompt", [[1], [2.5]]],
  ["a token beyond 32 bits", completions, "prompt", [4_294_967_296]],
  ["an input that is true", endpointAt("/v1/embeddings"), "input", true],
  ["a list of numbers as a text", generate, "input_ids", "1,2"],
  ["a score that is a number", endpointAt("/v1/score"), "text_1", 5],
  ["a rerank of a number", endpointAt("/v1/rerank"), "documents", 5],
])("a prompt of an unknown layout counts by its bytes: %s", (_, endpoint, name, value) => {
  const view = viewOf(endpoint, { model: "m", [name]: value });
  expect([view.unreadPrompt, view.promptBytes]).toEqual([name, JSON.stringify(value).length]);
});

test.each([
  ["one object of content parts", { content: [{ type: "text", text: "a" }] }],
  ["a text", "a"],
  ["no documents", []],
])("rerank takes documents as %s", (_, documents) => {
  expect(viewOf(endpointAt("/v1/rerank"), { query: "q", documents }).unreadPrompt).toBeUndefined();
});

test.each<[string, Endpoint, object, number | undefined]>([
  ["chat max_tokens", chat, { ...smallChat, max_tokens: 5 }, 5],
  ["chat max_completion_tokens", chat, { ...smallChat, max_completion_tokens: 6 }, 6],
  ["chat, both: the newer name counts", chat, { ...smallChat, max_tokens: 5, max_completion_tokens: 6 }, 6],
  ["chat, the newer one null", chat, { ...smallChat, max_tokens: 5, max_completion_tokens: null }, 5],
  ["completions", completions, { model: "m", prompt: "x", max_tokens: 9 }, 9],
  ["completions that only echo", completions, { model: "m", prompt: "x", max_tokens: 0 }, 0],
  ["responses", responses, { model: "m", input: "x", max_output_tokens: 8 }, 8],
  ["messages", anthropic, { model: "m", max_tokens: 4, messages: [{ role: "user", content: "x" }] }, 4],
  ["messages that only fill the cache", anthropic, { ...minimal.messages, max_tokens: 0 }, 0],
  ["generate", generate, { text: "x", sampling_params: { max_new_tokens: 3 } }, 3],
  ["token ids", endpointAt("/inference/v1/generate"), { token_ids: [1], sampling_params: { max_tokens: 3 } }, 3],
  ["generate that only fills the cache", generate, { text: "x", sampling_params: { max_new_tokens: 0 } }, 0],
  ["generate without parameters", generate, { text: "x", sampling_params: null }, undefined],
  [
    "generate, a batch: the largest counts",
    generate,
    { text: ["x", "y", "z"], sampling_params: [{ max_new_tokens: 3 }, { max_new_tokens: 11 }, {}] },
    11,
  ],
  ["generate ignores OpenAI's field", generate, { text: "x", max_tokens: 5 }, undefined],
  ["embeddings have no output", endpointAt("/v1/embeddings"), { model: "m", input: "x", max_tokens: 5 }, undefined],
])("output limit: %s", (_, endpoint, body, expected) => {
  expect(viewOf(endpoint, body).maxOutputTokens).toBe(expected);
});

test("SGLang's number of choices is in the sampling parameters", () => {
  expect(viewOf(generate, { text: "x", sampling_params: { n: 4 } }).choices).toBe(4);
  expect(viewOf(generate, { text: "x", n: 4 }).choices).toBe(1);
  expect(viewOf(generate, { text: ["x", "y"], sampling_params: [{ n: 2 }, { n: 5 }] }).choices).toBe(5);
});

test("a previous response is read on the Responses API only", () => {
  const body = { model: "m", input: "x", previous_response_id: "resp_1" };
  expect(viewOf(responses, body).previousResponseId).toBe("resp_1");
  expect(viewOf(responses, { ...body, previous_response_id: null }).previousResponseId).toBeUndefined();
  expect(viewOf(completions, { ...body, prompt: "x" }).previousResponseId).toBeUndefined();
});

test("Anthropic's user is in its metadata", () => {
  const body = { ...minimal.messages, metadata: { user_id: "u-1" } };
  expect(viewOf(anthropic, body).bodySession.user).toBe("u-1");
  expect(viewOf(anthropic, { ...minimal.messages, metadata: null, user: "u-2" }).bodySession.user).toBe("u-2");
  expect(viewOf(chat, { ...smallChat, metadata: { user_id: "u-1" } }).bodySession.user).toBeUndefined();
});

test("an empty session string is no session", () => {
  expect(viewOf(chat, { ...smallChat, user: "", session_id: "" }).bodySession).toEqual({
    user: undefined,
    session_id: undefined,
    prompt_cache_key: undefined,
  });
});

test("spans point at the bytes of each value, whatever white space and non-ASCII text stand around", () => {
  const body = Buffer.from(
    ' {\t"model" : "m" ,\r\n"messages":[ {"role":"user","content":"Grüße, 世界 \\" } ] {"} ]  ,"näme": 12345678901234567890\n} ',
  );
  const { spans } = viewOf(chat, body);
  const texts = [...spans].map(([key, { start, end }]) => [key, body.toString("utf8", start, end)]);
  expect(texts).toEqual([
    ["model", '"m"'],
    ["messages", '[ {"role":"user","content":"Grüße, 世界 \\" } ] {"} ]'],
    ["näme", "12345678901234567890"],
  ]);
});

test("a key with an escape is indexed by what it spells", () => {
  const view = viewOf(chat, '{"m\\u006fdel":"m","messages":[{}],"\\ud83d\\ude00":1}');
  expect([...view.spans.keys()]).toEqual(["model", "messages", "😀"]);
  expect(view.model).toBe("m");
});

test("the same key may stand in several objects, also in one within another", () => {
  const body = '{"model":"m","messages":[{"content":"a"},{"content":"c"}],"tools":[{"model":{"model":1}}]}';
  expect(viewOf(chat, body).promptBytes).toBe("ac".length + '[{"model":{"model":1}}]'.length);
});

// Of two keys of one name, one reader of JSON takes the first and another the last: what is checked, counted and matched here
// would not be what the engine computes. Those of the body itself were refused, those of objects in it passed.
test.each([
  ["of a message", '{"role":"user","content":"a","content":"b"}', "content"],
  ["of a message, once escaped", '{"role":"user","content":"a","cont\\u0065nt":"b"}', "content"],
  ["both escaped, in different ways", '{"\\u0072ole":"user","r\\u006fle":"b","content":"a"}', "role"],
  ["deep in a message", '{"role":"user","content":[{"type":"text","x":[{"y":{"text":1,"b":2,"text":3}}]}]}', "text"],
  ["that is empty", '{"role":"user","content":"a","x":{"":1,"":2}}', ""],
  [
    "the first and the last of many",
    `{"content":"a","x":{${[..."abcdefghijklmnopqrstuvwxyza"].map((key) => `"${key}":1`)}}}`,
    "a",
  ],
  [
    "the last two of many, once escaped",
    `{"x":{${[..."abcdefghijklmnpqrstuvwxyzo"].map((key) => `"${key}":1`)},"\\u006f":1}}`,
    "o",
  ],
  ["beyond ASCII", '{"role":"user","content":"a","é😀":1,"\\u00e9\\ud83d\\ude00":2}', "é😀"],
])("a key twice %s is refused", (_, message, param) => {
  const error = errorOf(() => viewOf(chat, `{"model":"m","messages":[${message}]}`));
  expect([error.code, error.param]).toEqual(["duplicate_key", param]);
});

test.each(['{"content":"a","ab":1,"ba":2,"ab ":3}', '{"content":"a","\\ud800":1,"\\ud801":2,"\ufffd":3}'])(
  "keys that differ, however little, are no duplicates: %s",
  (message) => {
    expect(viewOf(chat, `{"model":"m","messages":[${message}]}`).promptBytes).toBe(1);
  },
);

test.each(["constructor", "prototype", "toString", "hasOwnProperty"])("a key %s is ordinary", (key) => {
  const body = { ...smallChat, tools: [{ properties: { [key]: { type: "string" } } }], [key]: 1 };
  expect(viewOf(chat, body).body.fields).toEqual(JSON.parse(JSON.stringify(body)));
});

test("__proto__ as a value, in a text, or as part of a longer key is ordinary", () => {
  const body =
    '{"model":"__proto__","messages":[{"content":"say \\"__proto__\\": 1"}],"x__proto__":1,"__proto__x":["__proto__"]}';
  expect(viewOf(chat, body).model).toBe("__proto__");
});

test("lone surrogate escapes are the engine's business", () => {
  const view = viewOf(chat, '{"model":"m","messages":[{"content":"\\ud800 \\udc00\\ud800"}]}');
  expect(view.promptBytes).toBe(10);
});

test("64-bit integers and unknown fields do not matter to the view", () => {
  const view = viewOf(chat, '{"model":"m","messages":[{}],"bootstrap_room":9223372036854775807,"seed":-1e400}');
  expect(view.model).toBe("m");
});

test("the fields of a view are parsed once, and what it says by itself stays, whatever becomes of the bytes", () => {
  const body = bytesOf(smallChat);
  const view = viewOf(chat, body);
  const { fields } = view.body;
  body.fill(0);
  expect(view.model).toBe("m");
  expect(view.body.fields).toBe(fields);
  expect(fields).toEqual(smallChat);
});
