import { endpoints, readRequestView } from "@espalier/api";
import { createSeededRandom } from "@espalier/core";
import { type CandidateSet, createCandidateSet, createPolicy } from "@espalier/policies";
import { describe, expect, test } from "vitest";
import {
  addTransfers,
  createDecodePolicy,
  createTransferCost,
  defaultTransferCost,
  isPlausibleTransfers,
  isSplittable,
  maxPeerTransfers,
  noTransfers,
  probePolicy,
  splitThreshold,
  type TransferCost,
  transferProtocols,
} from "../../src/disaggregation/index.ts";

const bounds = { thresholdTokens: undefined, minTokens: 2_048, maxTokens: 16_384 };
const idle = { answersRunning: 0, prefillMsPerToken: 0.1, prefillMsPerTokenPair: 0, waitSavedMs: 0 };

describe("the threshold", () => {
  test("a worked example: 20 ms and 0.013 ms a token, against 0.1 ms a token for each of the answers", () => {
    const cost = { setupMs: 500, msPerToken: 0.013 };
    // Two answers stand still for 0.2 ms a token: 500 / (0.2 - 0.013) tokens.
    expect(splitThreshold({ ...idle, answersRunning: 2 }, cost, bounds)).toBe(2_674);
    // With 300 ms less to wait at the other engine, 200 / 0.187 tokens would do: the bound below.
    expect(splitThreshold({ ...idle, answersRunning: 2, waitSavedMs: 300 }, cost, bounds)).toBe(2_048);
    // With 1,500 ms more to wait there, 2,000 / 0.187 tokens.
    expect(splitThreshold({ ...idle, answersRunning: 2, waitSavedMs: -1_500 }, cost, bounds)).toBe(10_696);
  });

  test("an engine that does nothing else loses nothing by computing a prompt: the bound above", () => {
    expect(splitThreshold(idle, defaultTransferCost, bounds)).toBe(16_384);
    expect(splitThreshold({ ...idle, answersRunning: 100 }, defaultTransferCost, bounds)).toBe(2_048);
  });

  test("a queue that is left behind is worth a transfer even where nobody stands still", () => {
    expect(splitThreshold({ ...idle, waitSavedMs: 1_000 }, defaultTransferCost, bounds)).toBe(2_048);
  });

  test("attention counts: with 0.00002 ms for a pair of tokens, two answers wait 0.2 u + 0.00002 u^2 ms", () => {
    const cost = { setupMs: 500, msPerToken: 0.013 };
    const situation = { ...idle, answersRunning: 2, prefillMsPerTokenPair: 2e-5 };
    const tokens = splitThreshold(situation, cost, bounds);
    const gainMs = (u: number): number => 0.2 * u + 2e-5 * u ** 2 - 500 - 0.013 * u;
    expect([gainMs(tokens) >= 0, gainMs(tokens - 1) < 0, tokens]).toEqual([true, true, 2_171]);
    // Where the transfer is dearer than the prefill of short prompts, long ones are still worth it.
    const dear = { setupMs: 100, msPerToken: 0.3 };
    expect(splitThreshold(situation, dear, bounds)).toBe(5_855);
  });

  test("more answers at the prefill engine than at the one that would serve alone: the bound above", () => {
    expect(
      splitThreshold({ ...idle, answersRunning: -3, prefillMsPerTokenPair: 1e-6 }, defaultTransferCost, bounds),
    ).toBe(16_384);
  });

  test("one that was set is what it is", () => {
    expect(splitThreshold(idle, defaultTransferCost, { ...bounds, thresholdTokens: 5 })).toBe(5);
  });

  test("stays between its bounds; falls with answers and with queues, rises with the cost of transfers (seed 11)", () => {
    const random = createSeededRandom(11);
    for (let round = 0; round < 2_000; round++) {
      const situation = {
        answersRunning: random.integer(200),
        prefillMsPerToken: 0.01 + random.float(),
        prefillMsPerTokenPair: random.float() < 0.5 ? 0 : 1e-5 * random.float(),
        waitSavedMs: (random.float() - 0.5) * 4_000,
      };
      const cost = { setupMs: random.float() * 500, msPerToken: random.float() };
      const tokens = splitThreshold(situation, cost, bounds);
      expect(tokens).toBeGreaterThanOrEqual(bounds.minTokens);
      expect(tokens).toBeLessThanOrEqual(bounds.maxTokens);
      const more = { ...situation, answersRunning: situation.answersRunning + 1 };
      expect(splitThreshold(more, cost, bounds)).toBeLessThanOrEqual(tokens);
      const longer = { ...situation, waitSavedMs: situation.waitSavedMs + 100 };
      expect(splitThreshold(longer, cost, bounds)).toBeLessThanOrEqual(tokens);
      expect(splitThreshold(situation, { ...cost, setupMs: cost.setupMs + 50 }, bounds)).toBeGreaterThanOrEqual(tokens);
    }
  });
});

describe("the cost of transfers", () => {
  test("is what was assumed until there are any", () => {
    const cost = createTransferCost();
    expect([cost.ms(0), cost.ms(10_000)]).toEqual([20, 150]);
  });

  test.each([
    [5, 0.001],
    [200, 0.05],
    [40, 0],
  ])("is learned: %d ms and %d ms a token, with noise of a fifth", (setupMs, msPerToken) => {
    const random = createSeededRandom(5);
    const cost = createTransferCost();
    for (let round = 0; round < 1_000; round++) {
      const tokens = random.integer(32_000);
      cost.observe(tokens, (setupMs + msPerToken * tokens) * (0.8 + 0.4 * random.float()));
    }
    for (const tokens of [2_048, 8_192, 30_000]) {
      const truth = setupMs + msPerToken * tokens;
      expect(Math.abs(cost.ms(tokens) - truth)).toBeLessThan(0.15 * truth + 3);
    }
  });

  test("transfers of one size alone do not turn the line", () => {
    const cost = createTransferCost();
    for (let round = 0; round < 500; round++) cost.observe(4_000, 100);
    expect(cost.ms(4_000)).toBeGreaterThan(90);
    expect(cost.ms(4_000)).toBeLessThan(110);
    expect(cost.setupMs).toBeGreaterThanOrEqual(0);
    expect(cost.msPerToken).toBeGreaterThanOrEqual(0);
  });

  test("one that took forever is believed in part, what is no time not at all", () => {
    const cost = createTransferCost();
    for (let round = 0; round < 100; round++) cost.observe(4_000, 72);
    const before = cost.ms(4_000);
    cost.observe(4_000, 600_000);
    expect(cost.ms(4_000)).toBeLessThan(1.15 * before);
    const after = cost.ms(4_000);
    for (const bad of [Number.NaN, -1, Number.POSITIVE_INFINITY]) cost.observe(4_000, bad);
    for (const bad of [Number.NaN, -1, Number.POSITIVE_INFINITY]) cost.observe(bad, 50);
    expect(cost.ms(4_000)).toBe(after);
  });

  test("follows a link that became slow", () => {
    const cost = createTransferCost();
    for (let round = 0; round < 300; round++) cost.observe(1_000 + (round % 10) * 2_000, 10);
    for (let round = 0; round < 300; round++) cost.observe(1_000 + (round % 10) * 2_000, 500);
    expect(cost.ms(10_000)).toBeGreaterThan(400);
  });
});

const request = { promptTokens: 8_000, expectedOutputTokens: 200, sessionKey: undefined, prefixKey: undefined };

function candidatesOf(...columns: Partial<Record<keyof CandidateSet, number>>[]): CandidateSet {
  const set = createCandidateSet();
  for (const [index, values] of columns.entries()) {
    set.add(`c${index}`, index);
    for (const [name, value] of Object.entries(values))
      (set as unknown as Record<string, number[]>)[name]![index] = value;
  }
  return set;
}

describe("who decodes", () => {
  const policy = createDecodePolicy(createTransferCost());
  const choose = (...columns: Parameters<typeof candidatesOf>): number =>
    policy.choose(request, candidatesOf(...columns), createSeededRandom(1)).target;

  test.each<[string, Parameters<typeof candidatesOf>, number]>([
    ["the one that holds the prompt's beginning", [{}, { matchedTokens: 4_000 }], 1],
    ["the one with fewer answers to write", [{ inFlight: 30, decodeTokens: 90_000 }, { inFlight: 3 }], 1],
    ["the one whose answers have less context", [{ inFlight: 9, decodeTokens: 900_000 }, { inFlight: 9 }], 1],
    ["the one with no prompts to compute first", [{ pendingPrefillTokens: 5_000 }, { inFlight: 2 }], 1],
    ["not the one that is full", [{ kvUse: 0.99 }, { kvUse: 0.5, inFlight: 20 }], 1],
    [
      "the one with more weight among equals",
      [
        { weight: 1, inFlight: 8 },
        { weight: 4, inFlight: 8 },
      ],
      1,
    ],
    ["not one of no weight", [{ weight: 0 }, { inFlight: 50 }], 1],
    // 1,000 tokens move in 13 ms; twenty answers more slow 200 tokens down by 80 ms.
    ["a short match does not outweigh a long batch", [{ matchedTokens: 1_000, inFlight: 20 }, {}], 1],
  ])("%s", (_, columns, expected) => {
    expect(choose(...columns)).toBe(expected);
  });

  test("equals are drawn", () => {
    const random = createSeededRandom(2);
    const set = candidatesOf({}, {}, {});
    const drawn = Array.from({ length: 60 }, () => policy.choose(request, set, random).target);
    expect(new Set(drawn)).toEqual(new Set([0, 1, 2]));
  });

  test("it explains itself in milliseconds", () => {
    const { candidates } = policy.explain(request, candidatesOf({ inFlight: 1 }, { matchedTokens: 8_000 }));
    expect(candidates.map(({ cost }) => cost)).toEqual([expect.closeTo(0.013 * 8_000 + 4), 0]);
  });
});

describe("a policy that is watched", () => {
  test("chooses as before, and tells what was known of its choice", () => {
    const probe = probePolicy(createPolicy("least_connections"));
    const set = candidatesOf(
      { inFlight: 9 },
      { inFlight: 4, running: 6, pendingPrefillTokens: 1_000, prefillMsPerToken: 0.05, backlogMs: 70 },
    );
    expect(probe.policy.choose(request, set, createSeededRandom(1)).target).toBe(1);
    expect(probe.chosen).toEqual({ running: 6, backlogMs: 70, prefillMsPerToken: 0.05, prefillMsPerTokenPair: 0 });
    expect(probe.policy.name).toBe("least_connections");
    expect(probe.policy.explain(request, set).candidates).toHaveLength(2);
  });

  test("what nobody has learned is taken to be usual", () => {
    const probe = probePolicy(createPolicy("random"));
    probe.policy.choose(request, candidatesOf({ inFlight: 2, pendingPrefillTokens: 1_000 }), createSeededRandom(1));
    expect(probe.chosen).toEqual({ running: 2, backlogMs: 100, prefillMsPerToken: 0.1, prefillMsPerTokenPair: 0 });
  });
});

describe("what can be split", () => {
  const splittable = (path: string, body: object, protocol: keyof typeof transferProtocols = "nixl"): boolean => {
    const endpoint = endpoints.find((candidate) => candidate.path === path)!;
    const bytes = Buffer.from(JSON.stringify(body));
    return isSplittable(readRequestView(endpoint, bytes, { maxDepth: 64 }), transferProtocols[protocol]);
  };
  const chat = { model: "m", messages: [{ role: "user", content: "x" }] };
  const text = { model: "m", prompt: "x" };

  test.each<[string, string, object]>([
    ["a chat", "/v1/chat/completions", chat],
    ["a stream of 100 tokens", "/v1/chat/completions", { ...chat, stream: true, max_tokens: 100 }],
    ["a prompt of text", "/v1/completions", text],
    ["a prompt of tokens", "/v1/completions", { ...text, prompt: [1, 2, 3] }],
  ])("%s can", (_, path, body) => {
    expect(splittable(path, body)).toBe(true);
  });

  test.each<[string, string, object]>([
    ["several prompts", "/v1/completions", { ...text, prompt: ["a", "b"] }],
    ["several prompts of tokens", "/v1/completions", { ...text, prompt: [[1], [2]] }],
    ["several answers", "/v1/chat/completions", { ...chat, n: 2 }],
    ["an answer of one token", "/v1/chat/completions", { ...chat, max_tokens: 1 }],
    ["an answer of no token", "/v1/completions", { ...text, max_tokens: 0 }],
    ["what the prompt's own probabilities are asked of", "/v1/chat/completions", { ...chat, prompt_logprobs: 1 }],
    ["an echo", "/v1/completions", { ...text, echo: true }],
    ["embeddings in place of a prompt", "/v1/completions", { model: "m", prompt_embeds: "x" }],
    ["what is split already", "/v1/chat/completions", { ...chat, kv_transfer_params: null }],
    ["what has a room already", "/v1/chat/completions", { ...chat, bootstrap_room: 1 }],
    ["embeddings", "/v1/embeddings", { model: "m", input: "x" }],
    ["messages of another API", "/v1/messages", { ...chat, max_tokens: 5 }],
  ])("%s cannot", (_, path, body) => {
    expect(splittable(path, body)).toBe(false);
  });

  test("SGLang's own endpoint can be split in its own protocol only", () => {
    expect(splittable("/generate", { text: "x" }, "sglang")).toBe(true);
    expect(splittable("/generate", { input_ids: [1, 2] }, "sglang")).toBe(true);
    expect(splittable("/generate", { text: ["x", "y"] }, "sglang")).toBe(false);
    expect(splittable("/generate", { text: "x" })).toBe(false);
  });
});

describe("what others have seen of transfers", () => {
  const observe = (cost: TransferCost, count: number, by = 1): void => {
    for (let at = 0; at < count; at++) {
      const tokens = 1_000 + 1_000 * (at % 20);
      cost.observe(tokens, by * (50 + tokens / 20));
    }
  };
  const truthMs = 50 + 8_000 / 20;

  /** One that has seen nothing itself, and others that have seen so many transfers each. */
  function costOfPeers(...counts: readonly number[]): TransferCost {
    const others = counts.map((count) => {
      const cost = createTransferCost();
      observe(cost, count);
      return { sums: cost.observed(), share: 1 };
    });
    const cost = createTransferCost(undefined, () => addTransfers(others));
    cost.refit();
    return cost;
  }

  test("is what is expected before the first one here", () => {
    expect(createTransferCost().ms(8_000)).toBeCloseTo(124, 9);
    expect(Math.abs(costOfPeers(60).ms(8_000) / truthMs - 1)).toBeLessThan(0.1);
    expect(Math.abs(costOfPeers(40, 80, 20).ms(8_000) / truthMs - 1)).toBeLessThan(0.1);
    // What one transfer of another says is not all that is believed.
    expect(costOfPeers(1).ms(8_000)).toBeLessThan(0.8 * truthMs);
  });

  test("counts for no more than the bound, however many they are", () => {
    const cost = (weight: number): TransferCost => {
      const sums = {
        weight,
        tokens: 8e3 * weight,
        ms: 900 * weight,
        squareTokens: 64e6 * weight,
        tokenMs: 72e5 * weight,
      };
      const made = createTransferCost(undefined, () => sums);
      observe(made, 30);
      return made;
    };
    expect(cost(maxPeerTransfers + 1).ms(8_000)).toBe(cost(maxPeerTransfers).ms(8_000));
    expect(cost(maxPeerTransfers - 1).ms(8_000)).toBeLessThan(cost(maxPeerTransfers).ms(8_000));
  });

  test("with nothing told, is as if there were no others, to the last bit", () => {
    const [alone, among] = [createTransferCost(), createTransferCost(undefined, () => noTransfers)];
    for (const cost of [alone, among]) observe(cost, 33, 1.7);
    among.refit();
    expect([among.setupMs, among.msPerToken]).toEqual([alone.setupMs, alone.msPerToken]);
  });

  test("what is told is what was observed, and is plausible however long it goes on", () => {
    const random = createSeededRandom(4);
    const cost = createTransferCost();
    expect(cost.observed()).toEqual(noTransfers);
    for (let round = 0; round < 5_000; round++) {
      cost.observe(random.integer(100_000), 10_000 * random.float());
      expect(isPlausibleTransfers(cost.observed())).toBe(true);
    }
    expect(cost.observed().weight).toBeCloseTo(50, 6);
    expect(cost.observed().tokens / cost.observed().weight).toBeGreaterThan(30_000);
  });
});
