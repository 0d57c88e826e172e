/** Streams whose engine dies go on at another one. */
import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { cacheRouter, quietSims } from "./cache-rig.ts";
import { chat, eventData, type Json, openPost, post } from "./client.ts";
import { type HttpEngine, httpEngine, type SeenRequest } from "./engines.ts";
import { meshRouters } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const [chats, completions] = ["/v1/chat/completions", "/v1/completions"];

interface Choice {
  readonly text?: string;
  readonly delta?: { readonly role?: string; readonly content?: string | null };
  readonly finish_reason: string | null;
  readonly token_ids?: readonly number[] | null;
  readonly prompt_token_ids?: readonly number[] | null;
}

interface Chunk {
  readonly id: string;
  readonly created: number;
  readonly choices: readonly Choice[];
  readonly usage?: Json | null;
  readonly prompt_token_ids?: readonly number[] | null;
  readonly error?: Json;
}

/** What a client has of a stream. */
function read(text: string) {
  const data = eventData(text);
  const chunks = data.filter((each) => each !== "[DONE]").map((each) => JSON.parse(each) as Chunk);
  const choices = chunks.flatMap((chunk) => chunk.choices?.[0] ?? []);
  return {
    text: choices.map((choice) => choice.text ?? choice.delta?.content ?? "").join(""),
    ids: new Set(chunks.map(({ id }) => id)).size,
    created: new Set(chunks.map(({ created }) => created)).size,
    roles: choices.filter(({ delta }) => delta?.role !== undefined).length,
    reasons: choices.map(({ finish_reason }) => finish_reason).filter((reason) => reason !== null),
    usages: chunks.flatMap(({ usage }) => (usage ? [withoutCache(usage)] : [])),
    ends: data.filter((each) => each === "[DONE]").length,
    tokenIds: choices.flatMap(({ token_ids }) => token_ids ?? []),
    promptIds: [...chunks, ...choices].flatMap(({ prompt_token_ids: ids }) => (ids ? [ids] : [])),
    errors: chunks.flatMap(({ error }) => (error ? [error.code] : [])),
  };
}

/** Engines differ in what they have cached. */
const withoutCache = ({ prompt_tokens_details: _, ...usage }: Json): Json => usage;

const resumedBy = (text: string): string | undefined => /^: x-espalier-resumed: (\S+)$/m.exec(text)?.[1];

const usage = { stream_options: { include_usage: true } };
const completion = { model: "tiny", prompt: "Once upon a time", stream: true, max_tokens: 40, ...usage };

const requests: readonly (readonly [string, string, Json])[] = [
  ["a chat", chats, chat({ stream: true, max_tokens: 40 })],
  ["a chat that names no limit", chats, chat({ stream: true, max_tokens: undefined })],
  ["a completion", completions, completion],
  ["a completion by token ids", completions, { ...completion, prompt: [1, 2, 3, 4, 5], return_token_ids: true }],
  ["a completion of which the engine returns token ids", completions, { ...completion, return_token_ids: true }],
];

/** Two requests, of which one meets the engine that breaks. */
async function askBoth(router: RunningRouter, path: string, body: Json) {
  const texts = [(await post(router.url + path, body)).text, (await post(router.url + path, body)).text];
  const [broken, whole] = resumedBy(texts[0]!) ? texts : texts.toReversed();
  return { broken: broken!, whole: whole! };
}

async function pairOf(config: Json = {}): Promise<{ bad: Sim; good: Sim; router: RunningRouter }> {
  const [bad, good] = await rig.sims(2);
  const engines = [bad!.url, good!.url];
  const router = await rig.router({ engines, config: { policy: "round_robin", ...config } });
  return { bad: bad!, good: good!, router };
}

for (const kind of ["cut-mid-stream", "reset-mid-stream"]) {
  test.each(requests)(`${kind}: %s is one stream from two engines`, async (_name, path, body) => {
    const { bad, good, router } = await pairOf();
    for (const afterTokens of [1, 2, 17, 39]) {
      await bad.fault({ kind, afterTokens, count: 1 });
      const { broken, whole } = await askBoth(router, path, body);
      expect(resumedBy(broken)).toMatch(new RegExp(`^${good.id};tokens=\\d+;by=(text|ids|start)$`));
      expect(resumedBy(whole)).toBeUndefined();
      expect(read(broken)).toEqual(read(whole));
      expect(read(broken)).toMatchObject({ ids: 1, created: 1, ends: 1, errors: [] });
    }
    await router.untilIdle();
    const page = await router.metrics();
    expect(page.sum("espalier_broken_streams_total", { outcome: "completed" })).toBe(4);
    expect(page.sum("espalier_requests_total", { outcome: "answered" })).toBe(8);
    expect(page.sum("espalier_proxy_retries_total", { budget: "charged" })).toBe(4);
    expect(page.sum("espalier_resume_kept_bytes", {})).toBe(0);
  });
}

test("where the router makes the engines' tokens, the usage of a chat is exact, too", async () => {
  const sims = await quietSims(rig, 2);
  const router = await cacheRouter(rig, sims, {
    feeds: 0,
    config: { policy: "round_robin", health: { interval: "1s" } },
  });
  const body = chat({ stream: true, max_tokens: 30, ...usage });
  for (const afterTokens of [1, 12, 29]) {
    await sims[0]!.fault({ kind: "cut-mid-stream", afterTokens, count: 1 });
    const { broken, whole } = await askBoth(router, chats, body);
    expect(resumedBy(broken)).toMatch(new RegExp(`tokens=${afterTokens};by=text$`));
    expect(read(broken)).toEqual(read(whole));
  }
});

test.each(["cut-mid-stream", "reset-mid-stream"])(
  "%s: a stream of which only the head came begins anew",
  async (kind) => {
    const { bad, router } = await pairOf();
    await bad.fault({ kind, afterTokens: 0, count: 1 });
    const { broken, whole } = await askBoth(router, chats, chat({ stream: true, max_tokens: 20 }));
    expect(read(broken)).toEqual(read(whole));
    expect(read(broken)).toMatchObject({ ends: 1, errors: [], roles: 1 });
  },
);

test("the decisions of a request name both engines, and its log line, too", async () => {
  const { bad, good, router } = await pairOf();
  await bad.fault({ kind: "cut-mid-stream", afterTokens: 5, count: 1 });
  for (const id of ["r-1", "r-2"]) {
    await post(router.url + chats, chat({ stream: true, max_tokens: 20 }), { "x-request-id": id });
  }
  const line = router.lines.find(({ message }) => message === "stream resumed");
  expect(line?.fields).toMatchObject({ broken: bad.id, engine: good.id, kind: "reset", by: "text", tokens: 4 });
  const { json } = await router.admin("GET", `/admin/requests/${String(line?.fields.requestId)}`);
  expect(JSON.stringify(json)).toContain(bad.id);
  expect(JSON.stringify(json)).toContain(good.id);
});

describe("cut as ever", () => {
  const named = { type: "function", function: { name: "f", parameters: { type: "object" } } };
  test.each<readonly [string, string, Json]>([
    ["tools", chats, { tools: [named], tool_choice: "auto" }],
    ["a form of the answer", chats, { response_format: { type: "json_object" } }],
    ["log-probabilities", chats, { logprobs: true }],
    ["two choices", chats, { n: 2 }],
    ["penalties that count tokens", chats, { frequency_penalty: 0.5 }],
    ["a field that nobody knows", chats, { guided_choice: ["a"] }],
    ["an assistant's turn at the end", chats, { messages: [{ role: "assistant", content: "So" }] }],
    ["token ids of a chat", chats, { return_token_ids: true }],
    ["an echo", completions, { prompt: "Once", echo: true, messages: undefined }],
    ["token ids alone", completions, { prompt: [1, 2], messages: undefined }],
    ["no limit of a completion", completions, { prompt: "Once", max_tokens: undefined, messages: undefined }],
  ])("%s", async (_name, path, fields) => {
    const { bad, good, router } = await pairOf();
    for (const sim of [bad, good]) await sim.fault({ kind: "cut-mid-stream", afterTokens: 3 });
    const { text } = await post(router.url + path, chat({ stream: true, max_tokens: 20, ...fields }));
    expect(text).toContain("upstream_cut_short");
    expect([(await bad.state()).requests, (await good.state()).requests].flat()).toHaveLength(1);
    await router.untilIdle();
    expect((await router.metrics()).sum("espalier_requests_total", { outcome: "cut" })).toBe(1);
  });

  test("by the setting", async () => {
    const { bad, good, router } = await pairOf({ resume: { max: 0 } });
    for (const sim of [bad, good]) await sim.fault({ kind: "cut-mid-stream", afterTokens: 3 });
    const { text } = await post(router.url + chats, chat({ stream: true, max_tokens: 20 }));
    expect(text).toContain("upstream_cut_short");
    expect([(await bad.state()).requests, (await good.state()).requests].flat()).toHaveLength(1);
  });

  test("a stream that has become too long to keep, and one beside others that are kept", async () => {
    for (const resume of [{ "max-bytes": "20KiB" }, { "max-bytes-in-flight": "20KiB" }]) {
      const { bad, good, router } = await pairOf({ resume });
      for (const sim of [bad, good]) await sim.fault({ kind: "cut-mid-stream", afterTokens: 100 });
      const long = await post(router.url + chats, chat({ stream: true, max_tokens: 200 }));
      expect(read(long.text)).toMatchObject({ errors: ["upstream_cut_short"], ends: 0 });
      for (const sim of [bad, good]) {
        await sim.clearFaults();
        await sim.fault({ kind: "cut-mid-stream", afterTokens: 10, count: 1 });
      }
      expect((await router.metrics()).sum("espalier_resume_kept_bytes", {})).toBe(0);
      await good.clearFaults();
      const { broken } = await askBoth(router, chats, chat({ stream: true, max_tokens: 20 }));
      expect(resumedBy(broken)).toBeDefined();
    }
  });

  test("with no other engine", async () => {
    const [sim] = await rig.sims(1);
    const router = await rig.router({ engines: [sim!.url] });
    await sim!.fault({ kind: "cut-mid-stream", afterTokens: 3, count: 1 });
    const { text } = await post(router.url + chats, chat({ stream: true, max_tokens: 20 }));
    expect(read(text)).toMatchObject({ errors: ["upstream_cut_short"], ends: 0 });
    expect((await router.metrics()).sum("espalier_broken_streams_total", { outcome: "refused" })).toBe(1);
  });

  test("a request that breaks each engine meets two of three", async () => {
    const sims = await rig.sims(3);
    const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "round_robin" } });
    for (const sim of sims) await sim.fault({ kind: "reset-mid-stream", afterTokens: 3 });
    const { text } = await post(router.url + chats, chat({ stream: true, max_tokens: 40 }));
    expect(read(text)).toMatchObject({ ends: 0, roles: 1, ids: 2 });
    expect(read(text).text).toHaveLength(5 * 4);
    const asked = await Promise.all(sims.map(async (sim) => (await sim.state()).requests.length));
    expect(asked.toSorted()).toEqual([0, 1, 1]);
    await router.untilIdle();
    expect((await router.metrics()).sum("espalier_broken_streams_total", { outcome: "cut" })).toBe(1);
  });

  test("a request that was resent already", async () => {
    const sims = await rig.sims(3);
    const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "round_robin" } });
    for (const sim of sims) {
      await sim.fault({ kind: "reset-before-headers", count: 1 });
      await sim.fault({ kind: "cut-mid-stream", afterTokens: 3 });
    }
    // The first engine resets it; the second one would, so its fault is taken by another request.
    const { text } = await post(router.url + chats, chat({ stream: true, max_tokens: 20 }));
    expect(text).toMatch(/request_breaks_engines|upstream_cut_short/);
    const asked = await Promise.all(sims.map(async (sim) => (await sim.state()).requests.length));
    expect(asked.reduce((sum, count) => sum + count)).toBe(2);
  });

  test("a client that has left", async () => {
    const { bad, good, router } = await pairOf({ timeouts: { idle: "30s" } });
    for (const sim of [bad, good]) await sim.fault({ kind: "hang-mid-stream", afterTokens: 3 });
    const open = openPost(router.url + chats, chat({ stream: true, max_tokens: 20 }));
    open.body.catch(() => {});
    await waitFor(() => open.received().includes('"content":"tea '), { what: "the first token" });
    open.destroy();
    await router.untilIdle();
    expect([(await bad.state()).requests, (await good.state()).requests].flat()).toHaveLength(1);
  });
});

test("a silent engine: by the setting only", async () => {
  for (const idle of [false, true]) {
    const { bad, router } = await pairOf({ resume: { idle }, timeouts: { idle: "300ms" } });
    await bad.fault({ kind: "hang-mid-stream", afterTokens: 3, count: 1 });
    const body = chat({ stream: true, max_tokens: 20 });
    const texts = [(await post(router.url + chats, body)).text, (await post(router.url + chats, body)).text];
    expect(texts.filter((text) => text.includes("upstream_timeout"))).toHaveLength(idle ? 0 : 1);
    expect(texts.filter((text) => resumedBy(text))).toHaveLength(idle ? 1 : 0);
    await rig.close();
  }
});

describe("what engines send when they die", () => {
  const chunk = (fields: Json, choice: Json = {}): string => {
    const head = { id: "one", object: "chat.completion.chunk", created: 1, model: "tiny" };
    return `data: ${JSON.stringify({ ...head, ...fields, choices: [{ index: 0, finish_reason: null, ...choice }] })}\n\n`;
  };
  const said = (content: string): string => chunk({}, { delta: { content } });
  const opening = chunk({}, { delta: { role: "assistant", content: "" } });
  const dead = { message: "EngineCore encountered an issue. See stack trace (above) for the root cause.", code: 500 };

  /** The first request gets these bytes, the next one is for the rest. */
  async function twoEngines(first: (request: SeenRequest) => void, rest: string): Promise<readonly HttpEngine[]> {
    let requests = 0;
    const answer = (request: SeenRequest): void => {
      request.response.writeHead(200, { "content-type": "text/event-stream" });
      if (requests++ === 0) first(request);
      else request.response.end(rest);
    };
    const listed = [{ id: "tiny", owned_by: "vllm" }];
    return [await httpEngine(rig, answer, { listed }), await httpEngine(rig, answer, { listed })];
  }

  const rest = (text: string): string =>
    `${opening}${said(text)}${chunk({ id: "two" }, { delta: {}, finish_reason: "stop" })}data: [DONE]\n\n`;

  async function ask(engines: readonly HttpEngine[], config: Json = {}): Promise<string> {
    const router = await rig.router({ engines: engines.map(({ url }) => url), config });
    return (await post(router.url + chats, chat({ stream: true }))).text;
  }

  test.each([
    ["vLLM's last words", `data: ${JSON.stringify({ error: dead })}\n\ndata: [DONE]\n\n`],
    ["the end of the body", ""],
    ["half an event", said("lost").slice(0, 90)],
  ])("%s", async (_name, last) => {
    const engines = await twoEngines(({ response }) => response.end(opening + said("Good") + last), rest(" evening"));
    const text = await ask(engines);
    expect(read(text)).toMatchObject({
      text: "Good evening",
      reasons: ["stop"],
      ends: 1,
      errors: [],
      roles: 1,
      ids: 1,
    });
    const bodies = engines.flatMap(({ requests }) => requests).map(({ body }) => JSON.parse(body.toString()) as Json);
    const resumed = bodies.find(({ continue_final_message }) => continue_final_message);
    expect(resumed).toMatchObject({ add_generation_prompt: false });
    expect(resumed?.messages).toContainEqual({ role: "assistant", content: "Good" });
  });

  test("a character cut in two is neither lost nor sent twice", async () => {
    const bytes = Buffer.from(said("Grüße 👋"));
    for (const cut of [bytes.indexOf("ü") + 1, bytes.indexOf("👋") + 2]) {
      for (const inject of [true, false]) {
        const sent = Buffer.concat([Buffer.from(opening + said("Viele ")), bytes.subarray(0, cut)]);
        const engines = await twoEngines(
          ({ response, socket }) => void response.write(sent, () => socket.destroySoon()),
          rest(" Grüße 👋"),
        );
        expect(read(await ask(engines, { "inject-usage": inject })).text).toBe("Viele Grüße 👋");
      }
    }
  });

  test("white space that a template would trim is not said twice", async () => {
    const engines = await twoEngines(({ response }) => response.end(opening + said("Lines:\n\n")), rest("\n\n- one"));
    expect(read(await ask(engines)).text).toBe("Lines:\n\n- one");
    const other = await twoEngines(({ response }) => response.end(opening + said("Lines:\n\n")), rest("\n* one"));
    expect(read(await ask(other)).text).toBe("Lines:\n\n* one");
  });

  test.each([
    ["reasoning", chunk({}, { delta: { reasoning_content: "hm" } })],
    ["a call of a tool", chunk({}, { delta: { tool_calls: [{ index: 0, function: { name: "f" } }] } })],
    ["half a character", said("Gr\ufffd")],
  ])("%s is not continued", async (_name, event) => {
    const engines = await twoEngines(({ response }) => response.end(opening + said("A") + event), rest("B"));
    const text = await ask(engines);
    expect(resumedBy(text)).toBeUndefined();
    expect(engines.flatMap(({ requests }) => requests)).toHaveLength(1);
  });

  test("reasoning of the engine that goes on ends the stream with an error", async () => {
    const engines = await twoEngines(
      ({ response }) => response.end(opening + said("A")),
      `${opening}${chunk({}, { delta: { reasoning_content: "hm" } })}${rest("B")}`,
    );
    const text = await ask(engines);
    expect(read(text)).toMatchObject({ text: "A", ends: 0, errors: ["upstream_cut_short"] });
    expect(text).not.toContain("hm");
  });

  test("a stream that lacks its end alone is ended here", async () => {
    const last = chunk({}, { delta: { content: "." }, finish_reason: "stop" });
    const engines = await twoEngines(({ response, socket }) => {
      response.write(opening + said("Done") + last, () => socket.destroySoon());
    }, rest("never"));
    const text = await ask(engines);
    expect(read(text)).toMatchObject({ text: "Done.", reasons: ["stop"], ends: 1, errors: [] });
    expect(engines.flatMap(({ requests }) => requests)).toHaveLength(1);
  });

  test("an engine that refuses to go on: the error of the break", async () => {
    let requests = 0;
    const answer = ({ response }: SeenRequest): void => {
      if (requests++ === 0) response.writeHead(200, { "content-type": "text/event-stream" }).end(opening + said("A"));
      else response.writeHead(400, { "content-type": "application/json" }).end("{}");
    };
    const listed = [{ id: "tiny", owned_by: "vllm" }];
    const engines = [await httpEngine(rig, answer, { listed }), await httpEngine(rig, answer, { listed })];
    const text = await ask(engines);
    expect(read(text)).toMatchObject({ text: "A", ends: 0 });
    expect(read(text).errors).toHaveLength(1);
  });

  test("engines of other kinds get no half of a chat", async () => {
    const answer = ({ response }: SeenRequest): void => {
      response.writeHead(200, { "content-type": "text/event-stream" }).end(opening + said("A"));
    };
    const engines = [await httpEngine(rig, answer), await httpEngine(rig, answer)];
    expect(resumedBy(await ask(engines))).toBeUndefined();
    expect(engines.flatMap(({ requests }) => requests)).toHaveLength(1);
  });
});

describe("a drain that moves streams", () => {
  /** Streams that run for as long as it takes, each with its first tokens. */
  async function startStreams(router: RunningRouter, path: string, bodies: readonly Json[]) {
    const streams = bodies.map((body) => openPost(router.url + path, body));
    for (const { head } of streams) expect((await head).statusCode).toBe(200);
    const hasBegun = (): boolean => streams.every(({ received }) => received().split("\n\n").length > 4);
    await waitFor(hasBegun, { what: "tokens of every stream" });
    return streams;
  }

  const activeAt = async (sim: Sim): Promise<number> => (await sim.state()).active.length;

  test("takes an engine out while its streams go on elsewhere, and those that cannot go on stay", async () => {
    const sims = await rig.sims(2, { speed: 3 });
    const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "round_robin" } });
    const body = chat({ stream: true, max_tokens: 120, ...usage });
    const bodies = [body, body, body, body, { ...body, n: 2 }, { ...body, n: 2 }];
    const streams = await startStreams(router, chats, bodies);
    const [drained, other] = sims;
    const answer = await router.admin("PATCH", `/admin/engines/${drained!.id}`, { draining: true, move: true });
    expect(answer.json.draining).toBe(true);
    await waitFor(async () => (await activeAt(drained!)) === 1, { what: "the stream that stays" });
    const texts = await Promise.all(streams.map(async ({ body: rest }) => (await rest).toString()));
    expect(texts.filter((text) => resumedBy(text))).toHaveLength(2);
    const [whole] = texts.filter((text) => !resumedBy(text));
    for (const text of texts.slice(0, 4)) expect(read(text).text).toBe(read(whole!).text);
    for (const text of texts) expect(text).toContain("data: [DONE]\n\n");
    expect(texts.find((text) => resumedBy(text))).toContain(`: x-espalier-resumed: ${other!.id};`);
    await router.untilIdle();
    const page = await router.metrics();
    expect(page.sum("espalier_broken_streams_total", { outcome: "moved" })).toBe(2);
    expect(page.sum("espalier_requests_total", { outcome: "answered" })).toBe(6);
    const engine = (await router.engines()).find(({ id }) => id === drained!.id);
    expect(engine?.breaker.state).toBe("closed");
    expect(router.lines.find(({ message }) => message.startsWith("streams moved"))?.fields).toMatchObject({
      ...{ engine: drained!.id, moved: 2, stay: 0 },
    });
  });

  test("given at one router, moves the streams of the others, too", async () => {
    const sims = await rig.sims(2, { speed: 3 });
    const config = { policy: "round_robin", tokenizers: [] };
    const [one, other] = await meshRouters(rig, 2, sims, { tokenizes: false, config });
    const body = chat({ stream: true, max_tokens: 120 });
    const streams = await startStreams(other!, chats, [body, body]);
    await one!.admin("PATCH", `/admin/engines/${sims[0]!.id}`, { draining: true, move: true });
    await waitFor(async () => (await activeAt(sims[0]!)) === 0, { what: "an engine without streams" });
    const texts = await Promise.all(streams.map(async ({ body: rest }) => (await rest).toString()));
    expect(texts.filter((text) => resumedBy(text))).toHaveLength(1);
    expect(read(texts[0]!).text).toBe(read(texts[1]!).text);
  });

  test("leaves streams where they are when there is no other engine, or by the retry budget", async () => {
    const [first, second] = await rig.sims(2, { speed: 3 });
    for (const engines of [[first!.url], [first!.url, second!.url]]) {
      const retry = { "budget-ratio": 0, "budget-minimum": 0 };
      const router = await rig.router({ engines, config: { retry, policy: "round_robin" } });
      const body = chat({ stream: true, max_tokens: 60 });
      const streams = await startStreams(router, chats, [body, body]);
      await router.admin("PATCH", `/admin/engines/${first!.id}`, { draining: true, move: true });
      for (const { body: rest } of streams) {
        const text = (await rest).toString();
        expect(read(text)).toMatchObject({ ends: 1, errors: [] });
        expect(resumedBy(text)).toBeUndefined();
      }
    }
  });
});
