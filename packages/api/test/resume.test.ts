/** What another engine needs to go on with a stream, and how its part becomes one with what the client has. */
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  completeAnswer,
  continueRequest,
  createSseUsageFilter,
  type Endpoint,
  isResumable,
  PagedBytes,
  readBeginning,
  StreamSplice,
} from "../src/index.ts";
import { keptPages, unusedPages } from "../src/resume/paged-bytes.ts";
import { anthropic, bytesOf, chat, completions, smallChat, viewOf } from "./helpers.ts";

type Json = Readonly<Record<string, unknown>>;

const streamed = { ...smallChat, stream: true };
const text = { model: "m", prompt: "Once", stream: true, max_tokens: 9 };

describe("a request is resumable", () => {
  test.each<readonly [string, Endpoint, Json]>([
    ["a chat", chat, {}],
    ["a chat with every sampling option that begins anew at each token", chat, { temperature: 1, top_p: 0.9, seed: 3 }],
    ["a chat whose tools are not to be called", chat, { tools: [{}], tool_choice: "none" }],
    ["no tools", chat, { tools: [], functions: [], tool_choice: "auto" }],
    ["nulls, as clients write them", chat, { tools: null, response_format: null, logprobs: null, n: null }],
    ["plain text", chat, { response_format: { type: "text" }, n: 1, logprobs: false, frequency_penalty: 0 }],
    ["parts of a message", chat, { messages: [{ role: "user", content: [{ type: "text", text: "a" }] }] }],
    ["a completion", completions, { suffix: "", echo: false }],
    ["one text in a list", completions, { prompt: ["Once"] }],
    ["token ids, where the engine returns its own", completions, { prompt: [1, 2], return_token_ids: true }],
    ["one list of token ids", completions, { prompt: [[1, 2]], return_token_ids: true }],
  ])("%s", (_name, endpoint, fields) => {
    expect(isResumable(viewOf(endpoint, { ...(endpoint === chat ? streamed : text), ...fields }))).toBe(true);
  });

  test.each<readonly [string, Endpoint, Json]>([
    ["no stream", chat, { stream: false }],
    ["tools", chat, { tools: [{}] }],
    ["a tool that must be called", chat, { tools: [{}], tool_choice: "required" }],
    ["a grammar", chat, { response_format: { type: "json_schema" } }],
    ["a format that is none", chat, { response_format: 3 }],
    ["an unknown field", chat, { structured_outputs: { choice: ["a"] } }],
    ["choices", chat, { n: 2 }],
    ["log-probabilities", chat, { logprobs: true }],
    ["counted penalties", chat, { presence_penalty: 0.1 }],
    ["a beginning of the client's own", chat, { continue_final_message: true, add_generation_prompt: false }],
    ["a turn of the assistant", chat, { messages: [{ role: "assistant", content: "a" }] }],
    ["messages that are none", chat, { messages: "hello" }],
    ["a message that is none", chat, { messages: [3] }],
    ["no role", chat, { messages: [{ content: "a" }] }],
    ["token ids in a chat", chat, { return_token_ids: true }],
    ["log-probabilities of chosen tokens", completions, { logprobs: 0 }],
    ["an echo", completions, { echo: true }],
    ["a suffix", completions, { suffix: "end" }],
    ["two texts", completions, { prompt: ["a", "b"] }],
    ["no texts", completions, { prompt: [] }],
    ["token ids without those of the answer", completions, { prompt: [1, 2] }],
    ["embeddings", completions, { prompt: "a", prompt_embeds: "x" }],
    ["no limit", completions, { max_tokens: null }],
    ["another API", anthropic, { max_tokens: 3 }],
  ])("not with %s", (_name, endpoint, fields) => {
    expect(isResumable(viewOf(endpoint, { ...(endpoint === completions ? text : streamed), ...fields }))).toBe(false);
  });
});

const head = { id: "one", object: "chunk", created: 7, model: "m" };
const sse = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;
const saidBy = (endpoint: Endpoint, said: string): Json =>
  endpoint === chat ? { delta: { content: said } } : { text: said };
const chunkOf = (endpoint: Endpoint, said: string, more: Json = {}): Json => ({
  ...head,
  choices: [{ index: 0, ...saidBy(endpoint, said), logprobs: null, finish_reason: null, ...more }],
});
const opening = { ...head, choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }] };

/** The bytes of a whole stream, a token per event. */
function streamOf(endpoint: Endpoint, tokens: readonly string[], more: Json = {}): string {
  const events = tokens.map((token) => sse({ ...chunkOf(endpoint, token), ...more }));
  return (endpoint === chat ? sse(opening) : "") + events.join("");
}

function continued(endpoint: Endpoint, request: Json, sent: string | Buffer) {
  const beginning = readBeginning(Buffer.from(sent));
  const rest = beginning && continueRequest(endpoint, bytesOf(request), beginning, 64);
  return { beginning: beginning!, rest };
}

function bodyOf(endpoint: Endpoint, request: Json, sent: string): Json {
  const { rest } = continued(endpoint, request, sent);
  if (typeof rest !== "object") throw new Error(`not continued: ${rest}`);
  return JSON.parse(Buffer.concat([...rest.body]).toString()) as Json;
}

describe("the request for the rest", () => {
  test("a completion gets the text, and what is left of its limits", () => {
    const request = { ...text, min_tokens: 1, big: 9_007_199_254_740_993n.toString() };
    expect(bodyOf(completions, request, streamOf(completions, [" upon", " a"]))).toEqual({
      ...request,
      prompt: "Once upon a",
      max_tokens: 7,
      min_tokens: 0,
    });
  });

  test("a chat gets an open turn of the assistant, without white space at its end", () => {
    const request = { ...streamed, max_completion_tokens: 5 };
    const body = bodyOf(chat, request, streamOf(chat, ["Hel", "lo.", "\n\n"]));
    const messages = [...smallChat.messages, { role: "assistant", content: "Hello." }];
    const flags = { add_generation_prompt: false, continue_final_message: true };
    expect(body).toEqual({ ...request, messages, ...flags, max_completion_tokens: 3 });
  });

  test("token ids go in place of text, up to the last one whose text has come", () => {
    const events = [
      { text: "Once", token_ids: [5], prompt_token_ids: [1, 2] },
      { text: "", token_ids: [6] },
      { text: " 👋", token_ids: [7] },
      { text: "", token_ids: [8] },
    ].map((choice) => sse({ ...head, choices: [{ index: 0, finish_reason: null, ...choice }] }));
    const request = { ...text, return_token_ids: true };
    const sent = events.join("");
    expect(bodyOf(completions, request, sent)).toMatchObject({ prompt: [1, 2, 5, 6, 7], max_tokens: 6 });
    const byIds = { ...request, prompt: [3, 4] };
    expect(bodyOf(completions, byIds, sent)).toMatchObject({ prompt: [3, 4, 5, 6, 7] });
    // Text that waits for a stop sequence lags behind its tokens.
    expect(bodyOf(completions, { ...request, stop: ["xyz"] }, sent)).toMatchObject({ prompt: "OnceOnce 👋" });
  });

  test("nothing said yet: the request as it was", () => {
    expect(bodyOf(chat, streamed, streamOf(chat, []))).toEqual(streamed);
    expect(bodyOf(chat, streamed, streamOf(chat, ["\n"]))).toEqual(streamed);
    expect(bodyOf(completions, text, "")).toEqual(text);
  });

  test("nothing left to say", () => {
    const tokens = Array.from({ length: 9 }, () => " a");
    expect(continued(completions, text, streamOf(completions, tokens)).rest).toBe("complete");
    const stopped = streamOf(completions, ["a"]) + sse(chunkOf(completions, "", { finish_reason: "stop" }));
    expect(continued(completions, text, stopped).rest).toBe("complete");
  });

  test.each([
    ["half a character", streamOf(completions, ["a\ufffd"]), {}],
    ["half a pair", `${sse(chunkOf(completions, "a")).replace('"a"', '"a\\ud83d"')}`, {}],
    ["the beginning of a stop sequence", streamOf(completions, ["a", " EN"]), { stop: ["never", "END"] }],
    ["ids of the prompt without those of the answer", streamOf(completions, ["a"]), { prompt: [1, 2] }],
  ])("%s is not continued", (_name, sent, fields) => {
    expect(continued(completions, { ...text, ...fields }, sent).rest).toBeUndefined();
  });

  test.each([
    ["two choices", sse({ ...head, choices: [{ text: "a" }, { text: "b" }] })],
    ["the second choice", sse(chunkOf(completions, "a", { index: 1 }))],
    ["reasoning", sse({ ...head, choices: [{ index: 0, delta: { reasoning: "hm" } }] })],
    ["a call", sse({ ...head, choices: [{ index: 0, delta: { tool_calls: [{}] } }] })],
    ["something else", sse({ type: "message_start" })],
  ])("%s is no beginning", (_name, sent) => {
    expect(readBeginning(Buffer.from(sent))).toBeUndefined();
  });
});

test("what no engine sends is no beginning, and does not end the router", () => {
  const odd = fc.oneof(
    fc.jsonValue(),
    fc.record({ choices: fc.jsonValue(), usage: fc.jsonValue() }),
    fc.record({
      choices: fc.tuple(fc.record({ delta: fc.jsonValue(), text: fc.jsonValue(), token_ids: fc.jsonValue() })),
    }),
  );
  fc.assert(
    fc.property(fc.array(odd, { maxLength: 4 }), (events) => {
      const sent = Buffer.from(events.map(sse).join(""));
      const beginning = readBeginning(sent);
      if (beginning) continueRequest(completions, bytesOf(text), beginning, 64);
      const known = readBeginning(Buffer.from(streamOf(chat, ["a"])))!;
      const splice = new StreamSplice({
        beginning: known,
        continuation: { tokens: 1, repeated: "" },
        comment: () => "",
      });
      splice.push(sent);
      splice.end();
    }),
    { numRuns: randomRuns(300) },
  );
  const many = Array.from({ length: 400_000 }, () => 1);
  expect(readBeginning(Buffer.from(sse(chunkOf(completions, "a", { token_ids: many }))))?.tokenIds).toHaveLength(
    400_000,
  );
});

describe("the rest of a stream", () => {
  function spliced(endpoint: Endpoint, request: Json, sent: string, rest: readonly (string | Buffer)[]) {
    const { beginning, rest: continuation } = continued(endpoint, request, sent);
    if (typeof continuation !== "object") throw new Error("not continued");
    const splice = new StreamSplice({ beginning, continuation, comment: () => "resumed" });
    const out = [...rest.map((chunk) => splice.push(Buffer.from(chunk))), splice.end()];
    return { splice, text: Buffer.concat(out.filter((piece) => piece !== undefined)).toString() };
  }

  test("has the client's ids, one opening, the sum of the usage, and a comment before its end", () => {
    const usage = { prompt_tokens: 12, completion_tokens: 4, total_tokens: 16 };
    const details = { prompt_tokens_details: { cached_tokens: 11 } };
    const rest = [
      sse({ ...opening, id: "two", created: 9 }),
      sse({ ...chunkOf(chat, " you"), id: "two", created: 9 }),
      sse({ ...chunkOf(chat, "", { finish_reason: "stop" }), id: "two" }),
      sse({ ...head, id: "two", choices: [], usage: { ...usage, ...details } }),
      ": keep-alive\n\n",
      "data: [DONE]\n\n",
    ];
    const { text: out } = spliced(chat, streamed, streamOf(chat, ["How", " are"]), rest);
    const expected = { prompt_tokens: 10, completion_tokens: 6, total_tokens: 16 };
    expect(out).toBe(
      sse(chunkOf(chat, " you")) +
        sse(chunkOf(chat, "", { finish_reason: "stop" })) +
        sse({ ...head, choices: [], usage: { ...expected, prompt_tokens_details: { cached_tokens: 10 } } }) +
        ": keep-alive\n\n: resumed\n\ndata: [DONE]\n\n",
    );
  });

  test("counts on where usage is in every chunk", () => {
    const first = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
    const sent = streamOf(completions, ["a"], { usage: first });
    const { text: out } = spliced(completions, text, sent, [
      sse({ ...chunkOf(completions, "b"), usage: { prompt_tokens: 12, completion_tokens: 1, total_tokens: 13 } }),
    ]);
    expect(out).toContain('"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}');
  });

  test("that is an error passes as it is; one with reasoning does not pass", () => {
    const error = 'data: {"error":{"message":"no","code":500}}\n\n';
    expect(spliced(chat, streamed, streamOf(chat, ["a"]), [error]).text).toBe(error);
    const reasoning = sse({ ...head, choices: [{ index: 0, delta: { reasoning: "hm" } }] });
    const { splice, text: out } = spliced(chat, streamed, streamOf(chat, ["a"]), [reasoning, sse(chunkOf(chat, "b"))]);
    expect(out).toBe("");
    expect(splice.hasFailed).toBe(true);
  });

  test("an event of more than 1 MiB ends it, and the largest one below passes", () => {
    for (const [size, fails] of [
      [1_048_576 - 400, false],
      [1_048_577, true],
    ] as const) {
      const event = sse(chunkOf(completions, "x".repeat(size)));
      const { splice } = spliced(completions, text, streamOf(completions, ["a"]), [
        event.slice(0, -2),
        event.slice(-2),
      ]);
      expect(splice.hasFailed).toBe(fails);
    }
  });

  const word = fc.constantFrom("a", " b", "\n", "  ", "ü", " 👋", ".\n\n", "Grüße", ' {"x": 1}', "data: y", "\\n");
  const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 5 });

  test.each([chat, completions])("no character is lost or said twice, wherever a stream breaks ($id)", (endpoint) => {
    fc.assert(
      fc.property(
        fc.array(word, { minLength: 1, maxLength: 12 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        cuts,
        fc.boolean(),
        (tokens, at, fractions, strip) => {
          const request = endpoint === chat ? streamed : { ...text, max_tokens: 99 };
          const whole = Buffer.from(streamOf(endpoint, tokens));
          const sent = whole.subarray(0, Math.floor(at * whole.length));
          const filter = createSseUsageFilter({ strip, whole: true });
          const kept = new PagedBytes();
          const client = cut(sent, fractions).map((chunk) => {
            kept.append(chunk);
            return filter.push(chunk);
          });
          const beginning = readBeginning(kept.take())!;
          const rest = continueRequest(endpoint, bytesOf(request), beginning, 64);
          if (typeof rest !== "object") throw new Error("not continued");
          const splice = new StreamSplice({ beginning, continuation: rest, comment: () => "resumed" });
          filter.resume();
          const got = JSON.parse(Buffer.concat([...rest.body]).toString()) as Json;
          const given = givenOf(endpoint, got);
          const left = Array.from(tokens.join("").slice(given.length));
          for (const chunk of cut(Buffer.from(`${streamOf(endpoint, left)}data: [DONE]\n\n`), fractions)) {
            const due = splice.push(chunk);
            if (due) client.push(filter.push(due));
          }
          client.push(filter.end());
          expect(textOf(Buffer.concat(client.filter((each) => each !== undefined)).toString())).toBe(tokens.join(""));
        },
      ),
      { numRuns: randomRuns(500) },
    );
  });

  /** The beginning of the answer that a request has. */
  function givenOf(endpoint: Endpoint, { messages, prompt }: Json): string {
    if (endpoint === completions) return String(prompt).slice(text.prompt.length);
    const last = (messages as Json[]).at(-1);
    return last?.role === "assistant" ? String(last.content) : "";
  }

  function cut(bytes: Buffer, fractions: readonly number[]): Buffer[] {
    const places = [0, ...fractions.map((at) => Math.floor(at * bytes.length)).toSorted((a, b) => a - b), bytes.length];
    return places.slice(1).map((end, at) => bytes.subarray(places[at], end));
  }

  const textOf = (sent: string): string =>
    sent
      .split("\n\n")
      .filter((event) => event.startsWith("data: {"))
      .map((event) => JSON.parse(event.slice("data: ".length)) as { choices: { text?: string; delta?: Json }[] })
      .map(({ choices: [choice] }) => choice?.text ?? choice?.delta?.content ?? "")
      .join("");
});

describe("a stream that lacks its end alone", () => {
  const complete = (endpoint: Endpoint, request: Json, sent: string, promptTokens?: number) =>
    completeAnswer(endpoint, bytesOf(request), readBeginning(Buffer.from(sent))!, {
      isUsageWanted: true,
      promptTokens,
    })?.toString();

  test("gets its reason and its end", () => {
    const limited = `${sse({ ...head, choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: "length" }] })}data: [DONE]\n\n`;
    expect(complete(chat, streamed, streamOf(chat, ["a"]))).toBe(limited);
    const stopped = streamOf(chat, ["a"]) + sse(chunkOf(chat, "", { finish_reason: "stop" }));
    expect(complete(chat, streamed, stopped)).toBe("data: [DONE]\n\n");
  });

  test("with usage only if the prompt's tokens are known", () => {
    const request = { ...text, stream_options: { include_usage: true } };
    const sent = streamOf(completions, ["a", "b"]);
    expect(complete(completions, request, sent)).toBeUndefined();
    expect(complete(completions, request, sent, 5)).toContain(
      '"usage":{"prompt_tokens":5,"total_tokens":7,"completion_tokens":2}',
    );
  });
});

describe("bytes in pages", () => {
  test("come back as they went in, whatever their sizes", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(40_000), { maxLength: 6 }), (sizes) => {
        const pages = new PagedBytes();
        const chunks = sizes.map((size, at) => Buffer.alloc(size, at + 1));
        for (const chunk of chunks) pages.append(chunk);
        expect(pages.size).toBe(chunks.reduce((sum, { length }) => sum + length, 0));
        expect(pages.take().equals(Buffer.concat(chunks))).toBe(true);
        expect([pages.size, pages.take().length]).toEqual([0, 0]);
      }),
      { numRuns: randomRuns(100) },
    );
  });

  test("give at most 1,024 pages to those after them", () => {
    const pages = new PagedBytes();
    pages.append(Buffer.alloc(1_025 * 16_384));
    pages.clear();
    expect(unusedPages()).toBe(keptPages);
    pages.append(Buffer.alloc(20));
    expect(unusedPages()).toBe(keptPages - 1);
    expect(pages.take()).toEqual(Buffer.alloc(20));
  });
});

describe("the filter of a stream that may be resumed", () => {
  const dead = sse({ error: { message: "EngineCore encountered an issue. See stack trace.", code: 500 } });

  test("lets whole events pass only, and drops half of one for the rest", () => {
    const filter = createSseUsageFilter({ strip: false, whole: true });
    const event = sse(chunkOf(chat, "ü"));
    expect(filter.push(Buffer.from(event + event.slice(0, 60)))?.toString()).toBe(event);
    filter.resume();
    expect(filter.push(Buffer.from(event))?.toString()).toBe(event);
  });

  test("holds back the last words of a dead engine, which come where nobody goes on", () => {
    const filter = createSseUsageFilter({ strip: false, whole: true });
    const sent = sse(chunkOf(chat, "a"));
    expect(filter.push(Buffer.from(`${sent + dead}data: [DONE]\n\n`))?.toString()).toBe(sent);
    expect(filter.isBroken).toBe(true);
    // More than its last words is not kept.
    expect(filter.push(Buffer.from(sent))).toBeUndefined();
    expect(filter.end()?.toString()).toBe(`${dead}data: [DONE]\n\n`);
  });

  test("other errors pass at once", () => {
    const filter = createSseUsageFilter({ strip: false, whole: true });
    const error = sse({ error: { message: "Bad luck.", code: 500 } });
    expect(filter.push(Buffer.from(error))?.toString()).toBe(error);
    expect(filter.isBroken).toBe(false);
  });
});
