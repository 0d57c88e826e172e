import { createSeededRandom } from "@espalier/core";
import {
  type CandidateColumn,
  type CandidateSet,
  type ChoiceReason,
  createPolicy,
  type Policy,
  type RequestFeatures,
} from "@espalier/policies";
import { promptOf, tokensOf } from "@espalier/testing";
import { beforeEach, describe, expect, test } from "vitest";
import type { PrefixKnowledge } from "../src/prefix/prefix-knowledge.ts";
import type { PromptBlocks } from "../src/prefix/prompt-blocks.ts";
import { createTargetSelector, type Restriction, type TargetSelector } from "../src/select-target.ts";
import { type ScriptedTarget, scriptedTarget, type TargetChanges } from "./scripted-target.ts";
import { nothingShared, type SharedColumns } from "./shared-load.ts";

const features: RequestFeatures = {
  promptTokens: 100,
  expectedOutputTokens: 10,
  sessionKey: undefined,
  prefixKey: undefined,
};
const prompt = promptOf(tokensOf("a", 100));
const none: Restriction = { tried: new Set() };

type Row = { readonly key: string } & Readonly<Record<CandidateColumn, number>>;

/** A policy that notes what it sees and takes the candidate that it is told to. */
function notingPolicy(take: (rows: readonly Row[]) => number = () => 0): Policy & { readonly seen: Row[][] } {
  const seen: Row[][] = [];
  return {
    name: "random",
    readsPrefixes: false,
    prefixKeyTokens: 0,
    bindingTtlMs: 0,
    seen,
    choose(_, candidates) {
      const rows = Array.from({ length: candidates.count }, (__, at) => rowOf(candidates, at));
      seen.push(rows);
      const index = take(rows);
      return { index, target: candidates.target[index]!, reason: "random", creditMs: 0 };
    },
    explain() {
      throw new Error("not asked for");
    },
  };
}

const rowOf = (candidates: CandidateSet, at: number): Row => {
  const columns = Object.entries(candidates).filter(([, column]) => column instanceof Float64Array);
  const values = Object.fromEntries(columns.map(([name, column]) => [name, column[at]]));
  return { key: candidates.key[at]!, ...(values as Record<CandidateColumn, number>) };
};

/** Knows what a test says of each target by key, of every prompt. */
function knowledgeOf(known: Readonly<Record<string, Partial<Record<CandidateColumn, number>>>>): PrefixKnowledge & {
  readonly matched: PromptBlocks[];
} {
  const matched: PromptBlocks[] = [];
  return {
    matched,
    match: (looked) => void matched.push(looked),
    describe(target, _, candidates, index) {
      for (const [name, value] of Object.entries(known[target.key] ?? {})) {
        candidates[name as CandidateColumn][index] = value;
      }
    },
    evidence: () => undefined,
    place() {
      throw new Error("selecting places nothing");
    },
    forget() {},
    forgetPlacements() {},
    reported() {},
    renew() {},
  };
}

let selector: TargetSelector;
let policy: ReturnType<typeof notingPolicy>;
let targets: readonly ScriptedTarget[];

beforeEach(() => {
  selector = createTargetSelector({ random: createSeededRandom(1), knowledge: knowledgeOf({}) });
  policy = notingPolicy();
  targets = [];
});

/** A pool of targets, by their keys. */
const poolOf = (pool: Readonly<Record<string, TargetChanges>>): readonly ScriptedTarget[] =>
  Object.entries(pool).map(([key, changes], index) => scriptedTarget(index, key, changes));
const targetOf = (key: string) => targets.find((target) => target.key === key)!;

const select = (restriction: Restriction = none) =>
  selector.select({ policy }, targets, { features, prompt: undefined }, restriction);
const seenKeys = () => policy.seen.at(-1)?.map(({ key }) => key);

describe("what a policy sees of a target", () => {
  test("its load, its weight, how far it is and what its metrics say", () => {
    const metrics = { running: 2, waiting: 3, kvUse: 0.25, blockSize: 16, blockCount: 100, inFlightAtScrape: 1 };
    targets = poolOf({ a: { weight: 3, networkMs: 74, signals: { ...metrics, ageMs: () => 200 } } });
    const { load } = targetOf("a");
    const ticket = load.begin({ promptTokens: 70, uncachedTokens: 50, expectedOutputTokens: 5 });
    load.begin({ promptTokens: 40, uncachedTokens: 40, expectedOutputTokens: 5 });
    ticket.firstToken();
    select();
    expect(policy.seen[0]).toEqual([
      {
        key: "a",
        weight: 3,
        inFlight: 2,
        pendingPrefillTokens: 40,
        decodeTokens: 70,
        answers: 1,
        activeTokens: 0,
        newActiveTokens: Number.NaN,
        sessions: 0,
        running: 2,
        waiting: 3,
        kvUse: 0.25,
        kvCapacityTokens: 1_600,
        signalAgeMs: 200,
        inFlightAtSignal: 1,
        matchedTokens: 0,
        matchedCpuTokens: 0,
        matchedDiskTokens: 0,
        matchedExternalTokens: 0,
        matchedPoolTokens: 0,
        matchAgeMs: Number.NaN,
        heldTokens: Number.NaN,
        lendableTokens: 0,
        lendingTokens: 0,
        lendTrust: 1,
        pullProtocol: 0,
        pullMsPerToken: Number.NaN,
        pulledTokens: 0,
        pullMs: 0,
        pullFrom: Number.NaN,
        own: 0,
        networkMs: 74,
        backlogMs: Number.NaN,
        prefillMsPerToken: Number.NaN,
        prefillMsPerTokenPair: Number.NaN,
        cpuFetchMsPerToken: Number.NaN,
        diskFetchMsPerToken: Number.NaN,
        externalFetchMsPerToken: Number.NaN,
        adapterState: Number.NaN,
      },
    ]);
  });

  test("nothing where an engine has no metrics", () => {
    targets = poolOf({ a: {} });
    select();
    const unknown = ["running", "waiting", "kvUse", "kvCapacityTokens", "inFlightAtSignal"] as const;
    for (const column of unknown) expect(policy.seen[0]?.[0]?.[column], column).toBeNaN();
    expect(policy.seen[0]?.[0]?.signalAgeMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("nothing that was left by the candidates of the request before", () => {
    targets = poolOf({ a: {}, b: {} });
    const known = knowledgeOf({ a: { matchedTokens: 64, heldTokens: 99, matchAgeMs: 5 } });
    selector = createTargetSelector({ random: createSeededRandom(1), knowledge: known });
    selector.select({ policy }, targets, { features, prompt }, none);
    expect(policy.seen[0]?.[0]).toMatchObject({ matchedTokens: 64, heldTokens: 99, matchAgeMs: 5 });
    select();
    expect(policy.seen[1]?.[0]).toMatchObject({ matchedTokens: 0, heldTokens: Number.NaN, matchAgeMs: Number.NaN });
  });
});

describe("which targets are candidates", () => {
  test("not those that are not usable, as of now", () => {
    targets = poolOf({ a: {}, b: { usable: false }, c: {} });
    select();
    expect(seenKeys()).toEqual(["a", "c"]);
    targetOf("b").usable = true;
    targetOf("a").usable = false;
    select();
    expect(seenKeys()).toEqual(["b", "c"]);
  });

  test("not engines that only do prefill, which take no whole request", () => {
    targets = poolOf({ a: { role: "prefill" }, b: { role: "decode" }, c: {} });
    select();
    expect(seenKeys()).toEqual(["b", "c"]);
  });

  test("not those that have failed this request: ranks count one by one", () => {
    targets = poolOf({ a: {}, "a#1": { engine: "a" }, "a#2": { engine: "a" }, b: {} });
    select({ tried: new Set(["a#1", "b", "no-such-target"]) });
    expect(seenKeys()).toEqual(["a", "a#2"]);
  });

  test("every rank of the only engine that will do", () => {
    targets = poolOf({ a: {}, b: {}, "b#1": { engine: "b" } });
    select({ tried: new Set(), onlyEngine: "b" });
    expect(seenKeys()).toEqual(["b", "b#1"]);
  });

  test.each<[string, Restriction]>([
    ["all have been tried", { tried: new Set(["a", "b"]) }],
    ["the only one that will do has been tried", { tried: new Set(["a"]), onlyEngine: "a" }],
    ["the only one that will do is unknown", { tried: new Set(), onlyEngine: "z" }],
  ])("none when %s: the policy is not asked", (_, restriction) => {
    targets = poolOf({ a: {}, b: {} });
    expect(select(restriction)).toBeUndefined();
    expect(policy.seen).toEqual([]);
  });

  test("retries go through all targets, each once", () => {
    targets = poolOf({ a: {}, b: {}, "b#1": { engine: "b" }, c: {} });
    policy = notingPolicy((rows) => rows.length - 1);
    const tried = new Set<string>();
    for (let next = select({ tried }); next; next = select({ tried })) tried.add(next.target.key);
    expect([...tried]).toEqual(["c", "b#1", "b", "a"]);
  });
});

describe("the tokens that would be computed, wherever the prompt goes", () => {
  const uncached = (known: Parameters<typeof knowledgeOf>[0], looked?: PromptBlocks) =>
    createTargetSelector({ random: createSeededRandom(1), knowledge: knowledgeOf(known) }).uncachedTokens(targets, {
      features,
      prompt: looked,
    });

  test("are those that the usable target with the most lacks, in any tier", () => {
    targets = poolOf({ a: {}, b: {}, down: { usable: false } });
    expect(uncached({ a: { matchedTokens: 16 }, b: { matchedTokens: 48, matchedCpuTokens: 16 } }, prompt)).toBe(36);
    expect(uncached({ down: { matchedTokens: 96 } }, prompt)).toBe(100);
    expect(uncached({ a: { matchedTokens: 100 } }, prompt)).toBe(1);
  });

  test("are unknown for a policy that reads no prefixes", () => {
    targets = poolOf({ a: {} });
    expect(uncached({})).toBeUndefined();
  });
});

describe("blocks of requests in flight", () => {
  // ai-dynamo/dynamo@312d3427, lib/kv-router/src/sequences/prompt_registry.rs, `staggered_prefix_overlap_matches_naive_projection`:
  // requests of 96, 64 and 33 blocks of one prompt, one at each engine.
  const whole = promptOf(tokensOf("long", 96 * 16));
  const asked = { features: { ...features, promptTokens: whole.tokens }, prompt: whole };
  const dynamo = { ...notingPolicy(), readsActiveBlocks: true };
  const choose = (policy: Policy = dynamo) => selector.select({ policy }, targets, asked, none);
  const seenBlocks = () =>
    dynamo.seen.at(-1)?.map(({ activeTokens, newActiveTokens }) => [activeTokens / 16, newActiveTokens / 16]);

  beforeEach(() => {
    targets = poolOf({ a: {}, b: {}, c: {} });
    for (const [at, blocks] of [96, 64, 33].entries()) {
      const activeBlocks = { ...whole, blockCount: blocks };
      targets[at]!.load.begin({ promptTokens: blocks * 16, expectedOutputTokens: 1, activeBlocks });
    }
  });

  test("are those there and what the request would add, each once", () => {
    expect(choose()?.activeBlocks).toBe(whole);
    expect(seenBlocks()).toEqual([
      [96, 0],
      [64, 32],
      [33, 63],
    ]);
  });

  test("of other routers are added as they say", () => {
    const shared = { ...nothingShared(3), activeTokens: Float64Array.of(0, 160, 0) };
    selector = createTargetSelector({ random: createSeededRandom(1), knowledge: knowledgeOf({}), shared });
    choose();
    expect(seenBlocks()).toEqual([
      [96, 0],
      [74, 32],
      [33, 63],
    ]);
  });

  test("are looked at for a policy that reads them, and for no other", () => {
    const other = notingPolicy();
    expect(choose(other)?.activeBlocks).toBeUndefined();
    expect(other.seen[0]!.map(({ activeTokens, newActiveTokens }) => [activeTokens, newActiveTokens])).toEqual([
      [0, Number.NaN],
      [0, Number.NaN],
      [0, Number.NaN],
    ]);
  });
});

describe("the load of other routers", () => {
  let shared: SharedColumns;

  beforeEach(() => {
    shared = nothingShared(2);
    selector = createTargetSelector({ random: createSeededRandom(1), knowledge: knowledgeOf({}), shared });
    targets = poolOf({ a: {}, b: {} });
  });

  const seenLoads = () =>
    policy.seen
      .at(-1)
      ?.map(({ inFlight, pendingPrefillTokens, decodeTokens }) => [...[inFlight, pendingPrefillTokens, decodeTokens]]);

  test("is added to this router's own, target by target", () => {
    targetOf("a").load.begin({ promptTokens: 50, expectedOutputTokens: 5 });
    shared.inFlight.set([3, 1]);
    shared.pendingPrefillTokens.set([700, 0]);
    shared.decodeTokens.set([0, 900]);
    select();
    expect(seenLoads()).toEqual([
      [4, 750, 0],
      [1, 0, 900],
    ]);
  });

  test("decides where this router's own is the same", () => {
    const chosen = () =>
      selector.select({ policy: createPolicy("least_connections") }, targets, { features, prompt: undefined }, none)
        ?.target.key;
    shared.inFlight.set([2, 0]);
    expect(chosen()).toBe("b");
    shared.inFlight.set([2, 3]);
    expect(chosen()).toBe("a");
  });

  test("is not known of targets beyond its columns: one past the last has its own alone", () => {
    targets = poolOf({ a: {}, b: {}, c: {} });
    shared.inFlight.set([5, 5]);
    select();
    expect(seenLoads()?.map(([inFlight]) => inFlight)).toEqual([5, 5, 0]);
  });
});

describe("the choice", () => {
  test("is the target that the policy's own index stands for, whatever was left out before it", () => {
    targets = poolOf({ a: { role: "prefill" }, b: {}, c: {}, d: {} });
    policy = notingPolicy((rows) => rows.findIndex(({ key }) => key === "d"));
    expect(select({ tried: new Set(["b"]) })).toMatchObject({ target: targetOf("d"), reason: "random" });
  });

  test("says what is matched at it, in all tiers together", () => {
    targets = poolOf({ a: {}, b: {} });
    const tiers = { matchedTokens: 16, matchedCpuTokens: 32, matchedDiskTokens: 64, matchedExternalTokens: 128 };
    selector = createTargetSelector({
      random: createSeededRandom(1),
      knowledge: knowledgeOf({ a: { matchedTokens: 80 }, b: tiers }),
    });
    for (const [index, matchedTokens] of [80, 240].entries()) {
      policy = notingPolicy(() => index);
      const choice = selector.select({ policy }, targets, { features, prompt }, none);
      expect(choice?.matchedTokens).toBe(matchedTokens);
    }
  });

  test("looks a prompt up once, whatever the number of targets, and not at all without one", () => {
    targets = poolOf({ a: {}, b: {}, c: {} });
    const known = knowledgeOf({ a: { matchedTokens: 80 } });
    selector = createTargetSelector({ random: createSeededRandom(1), knowledge: known });
    selector.select({ policy }, targets, { features, prompt }, none);
    expect(known.matched).toEqual([prompt]);
    expect(select()?.matchedTokens).toBe(0);
    expect(known.matched).toHaveLength(1);
  });

  test.each<[string, ChoiceReason]>([
    ["least_work", "least_work"],
    ["cache_aware", "prefix_match"],
    ["epp_weighted", "best_score"],
  ])("%s goes where the prompt is, and elsewhere once that has failed", (name, reason) => {
    targets = poolOf({ a: {}, b: {}, c: {} });
    selector = createTargetSelector({
      random: createSeededRandom(1),
      knowledge: knowledgeOf({ b: { matchedTokens: 96, heldTokens: 96 }, c: { matchedTokens: 80, heldTokens: 80 } }),
    });
    const pool = { policy: createPolicy(name, name === "least_work" ? { "near-tie-tokens": 0 } : {}) };
    const at = (tried: readonly string[]) =>
      selector.select(pool, targets, { features, prompt }, { tried: new Set(tried) });
    expect(at([])).toMatchObject({ target: targetOf("b"), reason, matchedTokens: 96 });
    expect(at(["b"])).toMatchObject({ target: targetOf("c"), reason, matchedTokens: 80 });
    expect(at(["b", "c"])).toMatchObject({ target: targetOf("a"), matchedTokens: 0 });
  });
});
