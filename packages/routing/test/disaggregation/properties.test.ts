import { editBody, endpoints, readRequestView } from "@espalier/api";
import { createSeededRandom, kvTransferProtocols, type Random } from "@espalier/core";
import { createCandidateSet } from "@espalier/policies";
import { createVirtualTime, randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  cacheVerdict,
  createDecodePolicy,
  createRoleBalance,
  createTransferCost,
  transferProtocols,
  transferVerdict,
} from "../../src/disaggregation/index.ts";
import { pairRequest } from "./legs.ts";

const chat = endpoints.find(({ path }) => path === "/v1/chat/completions")!;
const limits = { maxDepth: 64 };

const jsonText = (value: unknown): string => JSON.stringify(value) ?? "null";
const anyFields = fc
  .dictionary(fc.string({ minLength: 1, maxLength: 12 }), fc.jsonValue({ maxDepth: 3 }), {
    maxKeys: 6,
    noNullPrototype: true,
  })
  .filter((fields) => !jsonText(fields).includes("__proto__"));
/** Keys of requests that a leg may change, with values of a client. */
const ownFields = fc.record(
  {
    stream: fc.boolean(),
    stream_options: fc.constant({ include_usage: true }),
    max_tokens: fc.integer({ min: 2, max: 10_000 }),
    max_completion_tokens: fc.integer({ min: 2, max: 10_000 }),
    min_tokens: fc.integer({ min: 0, max: 10 }),
    temperature: fc.double({ noNaN: true, min: 0, max: 2 }),
  },
  { requiredKeys: [] },
);

describe("any body, in any protocol", () => {
  test.each(kvTransferProtocols)(
    "%s: its legs are JSON, say what was asked of them, and leave the rest alone",
    (name) => {
      const random = createSeededRandom(9);
      fc.assert(
        fc.property(anyFields, ownFields, (others, own) => {
          const client: Record<string, unknown> = { ...others, ...own, model: "m", messages: [{ role: "user" }] };
          for (const key of ["n", "priority", "user", "session_id", "prompt_cache_key", "tools"]) delete client[key];
          const bytes = Buffer.from(jsonText(client));
          const view = readRequestView(chat, bytes, limits);
          const legs = transferProtocols[name].pair(
            pairRequest(name, { fields: view.body.fields, random, peerId: "e" }),
          );
          const decode = legs.decode(prefillAnswer(name))?.set ?? {};
          for (const set of [legs.prefill.set, legs.probe?.set ?? {}, decode]) {
            const text = Buffer.concat([...editBody(bytes, view, { set })]).toString();
            const sent = JSON.parse(text) as Record<string, unknown>;
            const expected = { ...client };
            for (const [key, value] of Object.entries(set)) expected[key] = JSON.parse(value);
            expect(sent).toEqual(JSON.parse(jsonText(expected)));
          }
          // The client's own choices reach the engine that answers it.
          for (const key of Object.keys(own)) expect(decode).not.toHaveProperty(key);
        }),
        { numRuns: randomRuns(60) },
      );
    },
  );
});

function prefillAnswer(name: string): Buffer {
  const params = { kv_transfer_params: { a: 1 } };
  const choice = { finish_reason: "length", disaggregated_params: { request_type: "context_only" } };
  return Buffer.from(jsonText({ ...(name === "nixl" ? params : {}), choices: [choice] }));
}

test("nixl: whatever the prefill engine's object holds reaches the decode engine byte for byte", () => {
  const legs = transferProtocols.nixl.pair(pairRequest("nixl"));
  fc.assert(
    fc.property(anyFields, fc.boolean(), fc.bigInt({ min: 0n, max: 2n ** 64n }), (fields, isIndented, id) => {
      const inner = `${JSON.stringify(fields, null, isIndented ? 2 : 0).slice(0, -1)}${Object.keys(fields).length > 0 ? "," : ""}"\\u0069d":${id}}`;
      const answer = `{"id":"x","choices":[{"text":"\\"kv_transfer_params\\":{}","finish_reason":"length"}],"kv_transfer_params": ${inner} ,"usage":{}}`;
      expect(legs.decode(Buffer.from(answer))?.set.kv_transfer_params).toBe(inner);
    }),
    { numRuns: randomRuns(200) },
  );
});

/** The verdict on a body that comes in pieces, as the proxy asks for it: always with all that came so far. */
function verdictInPieces(
  text: string,
  random: Random,
  judge: (head: Buffer, ended: boolean) => "pass" | "decline" | "more",
): "pass" | "decline" | "more" {
  const bytes = Buffer.from(text);
  let end = 0;
  while (end < bytes.length) {
    end = Math.min(bytes.length, end + 1 + random.integer(9));
    const verdict = judge(bytes.subarray(0, end), false);
    if (verdict !== "more") return verdict;
  }
  return judge(bytes, true);
}

describe("however an answer is cut into pieces, it is judged the same", () => {
  const roleEvent = 'data: {"id":"a","choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n';
  const finish = (reason: string) =>
    `data: {"id":"a","choices":[{"delta":{},"finish_reason":"${reason}"}]}\n\ndata: [DONE]\n\n`;
  const word = 'data: {"id":"a","choices":[{"delta":{"content":"word"},"finish_reason":null}]}\n\n';
  const whole = (reason: string) =>
    `{"id":"a","choices":[{"message":{"content":""},"finish_reason":"${reason}"}],"usage":{}}`;

  test.each<readonly [string, string, boolean, "pass" | "decline"]>([
    ["a stream that declines", roleEvent + finish("cache_threshold"), true, "decline"],
    ["a stream that declines at once", finish("cache_threshold"), true, "decline"],
    ["a stream with words", roleEvent + word + finish("stop"), true, "pass"],
    ["a stream without any", roleEvent + finish("stop"), true, "pass"],
    ["an answer that declines", whole("cache_threshold"), false, "decline"],
    ["an answer", whole("length"), false, "pass"],
  ])("%s (seeds 1 to 50)", (_, text, isStream, expected) => {
    for (let seed = 1; seed <= 50; seed++) {
      const judge = (head: Buffer, ended: boolean) => cacheVerdict(head, isStream, ended);
      expect(verdictInPieces(text, createSeededRandom(seed), judge), `seed ${seed}`).toBe(expected);
    }
  });

  test.each<readonly [string, string, "pass" | "decline"]>([
    ["an error first", 'data: {"error":{"message":"no blocks","code":500}}\n\ndata: [DONE]\n\n', "decline"],
    ["words first", roleEvent + word, "pass"],
    ["an error that was named before", 'event: error\ndata: {"error":{}}\n\n', "decline"],
    ["SGLang's own stream", 'data: {"text": "a", "meta_info": {}}\n\n', "pass"],
  ])("%s (seeds 1 to 50)", (_, text, expected) => {
    for (let seed = 1; seed <= 50; seed++) {
      const judge = (head: Buffer, ended: boolean) => transferVerdict(200, head, true, ended);
      expect(verdictInPieces(text, createSeededRandom(seed), judge), `seed ${seed}`).toBe(expected);
    }
  });
});

test("the line through transfers is the naive weighted one, once enough of them were seen (seed 3)", () => {
  const random = createSeededRandom(3);
  const cost = createTransferCost({ setupMs: 30, msPerToken: 0.02 });
  const seen: { readonly tokens: number; readonly ms: number }[] = [];
  for (let round = 0; round < 400; round++) {
    const tokens = 500 + random.integer(20_000);
    // Never far enough from what is expected to be cut.
    const ms = (35 + 0.018 * tokens) * (0.9 + 0.2 * random.float());
    seen.push({ tokens, ms });
    cost.observe(tokens, ms);
  }
  let [w, x, y, xx, xy] = [0, 0, 0, 0, 0];
  for (const [index, { tokens, ms }] of seen.entries()) {
    const weight = 0.98 ** (seen.length - 1 - index);
    w += weight;
    x += weight * tokens;
    y += weight * ms;
    xx += weight * tokens * tokens;
    xy += weight * tokens * ms;
  }
  const slope = (w * xy - x * y) / (w * xx - x * x);
  expect(cost.msPerToken).toBeCloseTo(slope, 4);
  expect(Math.abs(cost.setupMs - (y - slope * x) / w)).toBeLessThan(0.5);
});

test("more of anything that slows an engine down never draws an answer to it (seed 6)", () => {
  const random = createSeededRandom(6);
  const policy = createDecodePolicy(createTransferCost());
  const request = { promptTokens: 6_000, expectedOutputTokens: 300, sessionKey: undefined, prefixKey: undefined };
  const columns = ["inFlight", "decodeTokens", "pendingPrefillTokens"] as const;
  const spans = { inFlight: 60, decodeTokens: 400_000, pendingPrefillTokens: 20_000 } as const;
  for (let round = 0; round < 300; round++) {
    const set = createCandidateSet();
    for (const key of ["a", "b", "c"]) {
      const at = set.add(key, set.count);
      for (const column of columns) set[column][at] = random.integer(spans[column]);
      set.matchedTokens[at] = random.integer(6_000);
    }
    const first = policy.explain(request, set).candidates.map(({ cost }) => cost ?? 0);
    const loaded = random.integer(3);
    const column = columns[random.integer(columns.length)]!;
    set[column][loaded]! += 1 + random.integer(spans[column]);
    const second = policy.explain(request, set).candidates.map(({ cost }) => cost ?? 0);
    for (let at = 0; at < 3; at++) {
      if (at === loaded) expect(second[at]).toBeGreaterThan(first[at]!);
      else expect(second[at]).toBe(first[at]);
    }
    set.matchedTokens[loaded]! += 10;
    expect(policy.explain(request, set).candidates[loaded]?.cost).toBeLessThanOrEqual(second[loaded]!);
  }
});

test("the balance is the naive sum with every request halved each five minutes (seed 8)", () => {
  const random = createSeededRandom(8);
  const time = createVirtualTime();
  const balance = createRoleBalance({ clock: time.clock, prefillMsPerToken: 0.2, decodeMsPerToken: 0.4 });
  const seen: { readonly atMs: number; readonly uncachedTokens: number; readonly outputTokens: number }[] = [];
  for (let round = 0; round < 200; round++) {
    time.advance(random.integer(60_000));
    const served = { uncachedTokens: random.integer(50_000), outputTokens: random.integer(2_000) };
    seen.push({ atMs: time.clock.nowMs(), ...served });
    balance.observe(served);
    const now = time.clock.nowMs();
    let [prefill, decode] = [0, 0];
    for (const { atMs, uncachedTokens, outputTokens } of seen) {
      const kept = 0.5 ** ((now - atMs) / 300_000);
      prefill += kept * uncachedTokens * 0.2;
      decode += kept * outputTokens * 0.4;
    }
    expect(balance.prefillShare()).toBeCloseTo(prefill / (prefill + decode), 9);
    const engines = 2 + random.integer(30);
    const advised = balance.prefillEngines(engines);
    expect(advised).toBeGreaterThanOrEqual(1);
    expect(advised).toBeLessThan(engines);
    expect(Math.abs(advised - engines * balance.prefillShare())).toBeLessThanOrEqual(1);
  }
});
