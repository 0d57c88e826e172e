import { beforeEach, describe, expect, test } from "vitest";
import { begin, type ExchangeRig, exchangeRig, fail, failedOutcome } from "./prefix/exchange-rig.ts";

type Exchange = ReturnType<ExchangeRig["exchange"]>;
type Upstream = ReturnType<typeof begin>;

let rig: ExchangeRig;

beforeEach(async () => {
  rig = await exchangeRig();
});

/** The first bytes of an answer come: of a stream, its first content. */
function start(exchange: Exchange, upstream: Upstream, status = 200, contentType = "text/event-stream") {
  const filter = exchange.bodyFilter(status, contentType);
  exchange.responseStarted(upstream, status);
  exchange.firstByte();
  filter?.push(event("x"));
  return filter;
}

const event = (text: string) => Buffer.from(`data: {"choices":[{"index":0,"text":"${text}"}]}\n\n`);
const ended = Buffer.from("data: [DONE]\n\n");

function complete(exchange: Exchange, status = 200): void {
  exchange.finish({ kind: "completed", status, bytes: 10 });
}

const samples = () => rig.work.rates.samples;
const pending = (key: string) => rig.target(key).load.pendingWorkMs;

describe("a streamed answer", () => {
  test("teaches what its prompt took, from when it was sent to its first byte, and its pace", () => {
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    expect(pending(upstream.key)).toBe(
      Math.ceil(rig.work.rates.workMs({ index: 0, key: "" }, { uncachedTokens: 100, matchedTokens: 0 })),
    );
    rig.time.advance(80);
    const filter = start(exchange, upstream);
    expect(samples()).toBe(1);
    expect(pending(upstream.key)).toBe(0);
    for (let at = 0; at < 10; at++) {
      rig.time.advance(30);
      filter?.push(event("x"));
    }
    filter?.push(ended);
    complete(exchange);
    expect(rig.work.pace.msPerToken).toBeCloseTo(30, 0);
    expect(rig.work.busy.sentTo(0)).toBeGreaterThan(0);
  });

  test("that is cut teaches no pace", () => {
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    start(exchange, upstream);
    rig.time.advance(100);
    fail(exchange, upstream, { beforeFirstByte: false });
    exchange.finish(failedOutcome);
    expect(rig.work.pace.msPerToken).toBe(0);
    expect(pending(upstream.key)).toBe(0);
  });
});

describe("nothing is learned", () => {
  /**
   * Comments that keep a connection alive, and events that only open an answer, come while the prompt waits or is computed
   * (vLLM's --sse-keep-alive-interval; the Responses and Messages APIs). Taken for the first token, they taught that engines
   * compute prompts 500 times faster than they do.
   */
  test.each([
    ["a comment", ": keep-alive\n\n"],
    ["a chunk with a role alone", 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'],
    ["progress on the prompt", 'data: {"choices":[{"delta":{"content":null}}],"prompt_progress":{"total":9}}\n\n'],
    ["message_start", 'event: message_start\ndata: {"type":"message_start","message":{"content":[]}}\n\n'],
    ["a ping", 'event: ping\ndata: {"type":"ping"}\n\n'],
    ["response.created", 'event: response.created\ndata: {"type":"response.created","response":{}}\n\n'],
    ["an empty text of SGLang", 'data: {"text":"","meta_info":{"finish_reason":null}}\n\n'],
  ])("of %s: the prompt is still computed, until content comes", (_, opening) => {
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    const filter = exchange.bodyFilter(200, "text/event-stream");
    exchange.responseStarted(upstream, 200);
    exchange.firstByte();
    filter?.push(Buffer.from(opening));
    expect(samples()).toBe(0);
    expect(pending(upstream.key)).toBeGreaterThan(0);
    rig.time.advance(700);
    filter?.push(event("x"));
    expect(samples()).toBe(1);
    complete(exchange);
  });

  test.each([
    ["is an error", 'data: {"error":{"message":"EngineCore","code":500}}\n\n'],
    ["is empty", "data: [DONE]\n\n"],
  ])("of a stream that %s", (_, body) => {
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    const filter = exchange.bodyFilter(200, "text/event-stream");
    exchange.responseStarted(upstream, 200);
    exchange.firstByte();
    filter?.push(Buffer.from(body));
    complete(exchange);
    expect(samples()).toBe(0);
    expect(rig.work.pace.msPerToken).toBe(0);
    expect(pending(upstream.key)).toBe(0);
  });

  test("of an answer that comes as a whole, since nobody sees when its prompt was computed", () => {
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    rig.time.advance(5_000);
    start(exchange, upstream, 200, "application/json");
    complete(exchange);
    expect(samples()).toBe(0);
    expect(rig.work.pace.msPerToken).toBe(0);
    expect(pending(upstream.key)).toBe(0);
  });

  test.each([400, 429, 500])("of an answer of status %d", (status) => {
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    start(exchange, upstream, status);
    complete(exchange, status);
    expect(samples()).toBe(0);
    expect(pending(upstream.key)).toBe(0);
  });

  test("of an attempt that fails before its first byte; the next one is timed from its own start", () => {
    const exchange = rig.exchange();
    const first = begin(exchange);
    rig.time.advance(60_000);
    fail(exchange, first);
    expect(samples()).toBe(0);
    const second = begin(exchange);
    expect(second.key).not.toBe(first.key);
    expect([pending(first.key), pending(second.key) > 0]).toEqual([0, true]);
    rig.time.advance(40);
    start(exchange, second);
    expect(samples()).toBe(1);
    const { rates } = rig.work;
    expect(
      rates.fixedMs + rates.workMs(rig.target(second.key), { uncachedTokens: 100, matchedTokens: 0 }),
    ).toBeLessThan(60);
    complete(exchange);
  });

  /**
   * A stream that breaks before its first byte leaves the attempt marked as streamed; an error of the next engine, which
   * comes at once, would then be taken for its first token.
   */
  test("of an error that follows a stream that broke before its first byte", () => {
    const exchange = rig.exchange();
    const first = begin(exchange);
    exchange.bodyFilter(200, "text/event-stream");
    fail(exchange, first);
    const second = begin(exchange);
    start(exchange, second, 400, "application/json");
    complete(exchange, 400);
    expect(samples()).toBe(0);
  });

  test("of a request that waits for its LoRA adapter to be loaded", async () => {
    rig = await exchangeRig({ loadAdapter: async () => true });
    const adapted = { promptTokens: 100, expectedOutputTokens: 0, adapter: "sql" };
    const exchange = rig.exchange({ features: { ...adapted, sessionKey: undefined, prefixKey: undefined } });
    const upstream = await exchange.next();
    rig.time.advance(9_000);
    exchange.attemptStarted();
    start(exchange, upstream!);
    complete(exchange);
    expect(samples()).toBe(0);
    expect(pending(upstream!.key)).toBe(0);
  });

  test("of a prompt whose length nobody knows, and it is no work", () => {
    const features = { promptTokens: 0, expectedOutputTokens: 0, sessionKey: undefined, prefixKey: undefined };
    const exchange = rig.exchange({ features, prompt: undefined });
    const upstream = begin(exchange);
    expect(pending(upstream.key)).toBe(0);
    rig.time.advance(500);
    start(exchange, upstream);
    complete(exchange);
    expect(samples()).toBe(0);
  });
});
