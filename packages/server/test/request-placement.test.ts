import { EspalierError } from "@espalier/core";
import { createPolicy, defaultObjectives, type PolicyName } from "@espalier/policies";
import type { PoolWork } from "@espalier/routing";
import type { FeedQuality } from "@espalier/shared-tree";
import { promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import {
  answer,
  begin,
  type DrivenSource,
  exchangeRig,
  type Failed,
  fail,
  failedOutcome,
  prompt,
  ttlMs,
} from "./prefix/exchange-rig.ts";

const other = (key: string): string => (key === "a" ? "b" : "a");
const headerOf = (headers: readonly string[], name: string): string | undefined => headers[headers.indexOf(name) + 1];

describe("a prompt is placed where it is sent", () => {
  test("before it goes out, so that the next of a burst goes to the same engine", async () => {
    const rig = await exchangeRig();
    const first = begin(rig.exchange());
    expect([rig.held(first.key), rig.held(other(first.key))]).toEqual([96, 0]);
    const [second, third] = [rig.exchange(), rig.exchange()];
    expect([begin(second).key, begin(third).key]).toEqual([first.key, first.key]);
  });

  test("the client is told what was thought to be there", async () => {
    const rig = await exchangeRig();
    const [first, second] = [rig.exchange(), rig.exchange()];
    begin(first);
    begin(second);
    expect(headerOf(first.responseHeaders(), "x-espalier-cache-hit-tokens")).toBe("0");
    expect(headerOf(second.responseHeaders(), "x-espalier-cache-hit-tokens")).toBe("96");
  });

  test("nothing is said or placed where the policy looks at no prompts", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange({ prompt: undefined });
    const upstream = begin(exchange);
    expect(exchange.responseHeaders()).not.toContain("x-espalier-cache-hit-tokens");
    answer(exchange, upstream, { cached: 16 });
    expect(rig.index.placements.placedBlocks).toBe(0);
    // Policies were compared by this number, which stood still under those that match no prompts.
    expect(rig.meter.value("espalier_cache_tokens_total", "reported")).toBe(16);
    expect(rig.meter.value("espalier_cache_tokens_total", "predicted")).toBeUndefined();
  });

  test("its load is what has to be computed", async () => {
    const rig = await exchangeRig();
    const { key } = begin(rig.exchange());
    const { load } = rig.target(key);
    expect(load.pendingPrefillTokens).toBe(100);
    begin(rig.exchange());
    expect(load.pendingPrefillTokens).toBe(104);
  });

  test("which is one token at least, whatever is thought to be there", async () => {
    const rig = await exchangeRig();
    const bytes = promptOf(tokensOf("a", 96), { from: "bytes" });
    const features = { promptTokens: 96, expectedOutputTokens: 1, sessionKey: undefined, prefixKey: undefined };
    const { key } = begin(rig.exchange({ prompt: bytes, features }));
    begin(rig.exchange({ prompt: bytes, features }));
    expect(rig.target(key).load.pendingPrefillTokens).toBe(97);
  });
});

/** A client that timed out before the first token left its placement behind: the next one was sent to blocks of nobody. */
describe("a client that goes away", () => {
  test("before the first token leaves nothing behind, and the next one is placed as ever", async () => {
    const rig = await exchangeRig();
    const gone = rig.exchange();
    const { key } = begin(gone);
    expect(rig.held(key)).toBe(96);
    gone.finish({ kind: "client_closed" });
    expect([rig.held("a"), rig.held("b")]).toEqual([0, 0]);
    const next = rig.exchange();
    const upstream = begin(next);
    answer(next, upstream, { cached: 0 });
    expect(rig.held(upstream.key)).toBe(96);
  });

  test("after the first token leaves what the engine has computed", async () => {
    const rig = await exchangeRig();
    const gone = rig.exchange();
    const upstream = begin(gone);
    gone.responseStarted(upstream, 200);
    gone.firstByte();
    gone.finish({ kind: "client_closed" });
    expect(rig.held(upstream.key)).toBe(96);
  });
});

describe("blocks of prompts under way", () => {
  const poolOf = (policy: PolicyName, work: PoolWork) => {
    return {
      model: "m",
      policy: createPolicy(policy),
      work,
      upstreamHeaders: [],
      forwardAuthorization: false,
      holdMs: 0,
      objectivesOf: () => defaultObjectives,
      defaultClass: "default",
    };
  };

  test("are counted from dispatch to the end, however it comes, where the policy reads them", async () => {
    const rig = await exchangeRig();
    const active = (): number[] => ["a", "b"].map((key) => rig.target(key).load.activeTokens);
    const sum = (): number => active()[0]! + active()[1]!;
    const [failed, answered, gone] = Array.from({ length: 3 }, () =>
      rig.exchange({ pool: poolOf("dynamo", rig.work) }),
    ) as [DrivenSource, DrivenSource, DrivenSource];
    const first = begin(failed);
    expect(sum()).toBe(96);
    fail(failed, first);
    expect(sum()).toBe(0);
    failed.finish(failedOutcome);
    const second = begin(answered);
    begin(gone);
    // The idle one, which computes the prompt anew, has fewer blocks to come than the one that waits for it.
    expect(active()).toEqual([96, 96]);
    answer(answered, second, { cached: 0 });
    expect(sum()).toBe(96);
    gone.finish(failedOutcome);
    expect(sum()).toBe(0);
  });

  test("are not, where it does not", async () => {
    const rig = await exchangeRig();
    const { key } = begin(rig.exchange({ pool: poolOf("least_work", rig.work) }));
    expect(rig.target(key).load.activeTokens).toBe(0);
  });
});

describe("an attempt that fails", () => {
  test.each<Failed & { held: number }>([
    { kind: "connect", held: 0 },
    { kind: "overloaded", held: 0 },
    { kind: "reset", held: 0 },
    { kind: "timeout", held: 0 },
    { kind: "status", status: 429, held: 0 },
    { kind: "status", status: 503, held: 0 },
    { kind: "protocol", held: 0 },
    { kind: "reset", beforeFirstByte: false, held: 96 },
  ])("by $kind $status leaves $held tokens there", async ({ held, ...failed }) => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    if (failed.beforeFirstByte === false) {
      exchange.responseStarted(upstream, 200);
      exchange.firstByte();
    }
    fail(exchange, upstream, failed);
    expect(rig.held(upstream.key)).toBe(held);
    expect(rig.target(upstream.key).load.inFlight).toBe(0);
  });

  test("is followed by one at the other engine, which then holds the prompt", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    const first = begin(exchange);
    fail(exchange, first);
    const second = begin(exchange);
    expect(second.key).toBe(other(first.key));
    expect([rig.held(first.key), rig.held(second.key)]).toEqual([0, 96]);
    answer(exchange, second, { cached: 0 });
    expect([rig.held(first.key), rig.held(second.key)]).toEqual([0, 96]);
    expect(rig.meter.value("espalier_cache_tokens_total", "predicted")).toBe(0);
  });

  test("keeps what was there before it", async () => {
    const rig = await exchangeRig();
    const earlier = rig.exchange({ prompt: promptOf(tokensOf("a", 64)) });
    const { key } = begin(earlier);
    const exchange = rig.exchange();
    expect(begin(exchange).key).toBe(key);
    fail(exchange, { key, url: "", headers: [] });
    expect(rig.held(key)).toBe(64);
  });

  test("leaves nobody when all have failed", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    for (let attempt = 0; attempt < 2; attempt++) fail(exchange, begin(exchange));
    expect(exchange.next()).toBeUndefined();
    expect(exchange.finish(failedOutcome)).toBeInstanceOf(EspalierError);
    expect([rig.held("a"), rig.held("b"), rig.index.placements.placedBlocks]).toEqual([0, 0, 0]);
  });
});

// A refusal that is passed on to the client has a body like any answer. Its first byte was taken for the end of the
// prefill, so engines were thought to hold prompts that they had never computed.
describe("a refusal that the client gets leaves nothing behind", () => {
  const qualities: readonly FeedQuality[] = ["none", "partial", "complete"];
  const statuses = [400, 413, 429, 500, 503];

  test.each(qualities.flatMap((quality) => statuses.map((status) => ({ quality, status }))))(
    "status $status of an engine whose feed is $quality",
    async ({ quality, status }) => {
      const rig = await exchangeRig({ quality });
      const exchange = rig.exchange();
      const upstream = begin(exchange);
      answer(exchange, upstream, { status });
      expect([rig.held(upstream.key), rig.index.placements.placedBlocks]).toEqual([0, 0]);
    },
  );

  test("also when it was worth another engine, and there is none", async () => {
    const rig = await exchangeRig({ quality: "complete" });
    const exchange = rig.exchange({ targets: [rig.target("a")] });
    const upstream = begin(exchange);
    fail(exchange, upstream, { kind: "status", status: 503 });
    expect(exchange.next()).toBeUndefined();
    answer(exchange, upstream, { status: 503 });
    expect(rig.held("a")).toBe(0);
  });

  test.each([200, 201, 304])("a status of %i is no refusal", async (status) => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    answer(exchange, upstream, { status });
    expect(rig.held(upstream.key)).toBe(96);
  });
});

describe("what the answer tells", () => {
  test("cached tokens are compared with what was predicted, and confirm the guess", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    const { key } = begin(exchange);
    rig.time.advance(10_000);
    answer(exchange, { key, url: "", headers: [] }, { cached: 32 });
    const counted = ["predicted", "reported", "over", "under"].map((kind) =>
      rig.meter.value("espalier_cache_tokens_total", kind),
    );
    expect(counted).toEqual([0, 32, 0, 32]);
    rig.time.advance(ttlMs - 1);
    expect(rig.held(key)).toBe(96);
    rig.time.advance(1);
    expect(rig.held(key)).toBe(0);
  });

  test("where events come, the guess ends two seconds after the first byte, or ten after the dispatch", async () => {
    const rig = await exchangeRig({ quality: "complete" });
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    rig.time.advance(9_000);
    answer(exchange, upstream, { cached: 0 });
    rig.time.advance(1_999);
    expect(rig.held(upstream.key)).toBe(96);
    rig.time.advance(1);
    expect(rig.held(upstream.key)).toBe(0);
  });

  test.each([
    { kind: "client_closed" } as const,
    { kind: "cut", error: new EspalierError("upstream_cut_short") } as const,
  ])("of one that is not whole ($kind) usage does not count", async (outcome) => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    const filter = exchange.bodyFilter(200, "application/json");
    exchange.responseStarted(upstream, 200);
    exchange.firstByte();
    filter?.push(Buffer.from('{"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":96}}}'));
    exchange.finish(outcome);
    expect(rig.meter.value("espalier_cache_tokens_total", "reported")).toBeUndefined();
    expect(rig.held(upstream.key)).toBe(96);
    expect(rig.target(upstream.key).load.inFlight).toBe(0);
  });

  test("many requests of one conversation: predictions follow what was sent", async () => {
    const rig = await exchangeRig();
    let predicted = 0;
    for (let turn = 1; turn <= 5; turn++) {
      const exchange = rig.exchange({ prompt: promptOf(tokensOf("a", 100 * turn)) });
      const upstream = begin(exchange);
      const said = Number(headerOf(exchange.responseHeaders(), "x-espalier-cache-hit-tokens"));
      expect(said, `turn ${turn}`).toBe(Math.floor((100 * (turn - 1)) / 16) * 16);
      predicted += said;
      answer(exchange, upstream, { cached: said });
    }
    expect(rig.meter.value("espalier_cache_tokens_total", "predicted")).toBe(predicted);
    expect(rig.meter.value("espalier_cache_tokens_total", "over")).toBe(0);
    expect([rig.held("a"), rig.held("b")].sort()).toEqual([0, 96]);
    expect(prompt.blockCount).toBe(6);
  });
});
