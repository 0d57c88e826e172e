import { createSeededRandom } from "@espalier/common";
import {
  type CandidateColumn,
  type CandidateSet,
  type ChoiceReason,
  createPolicy,
  type Policy,
  type RequestFeatures,
} from "@espalier/policies";
import type { Target } from "@espalier/workers";
import { beforeEach, describe, expect, test } from "vitest";
import type { PrefixKnowledge } from "../src/prefix/prefix-knowledge.ts";
import type { PromptBlocks } from "../src/prefix/prompt-blocks.ts";
import type { PoolSettings } from "../src/routing/pools.ts";
import { createTargetSelector, type Restriction, type TargetSelector } from "../src/routing/select-target.ts";
import { promptOf, tokensOf } from "./prefix/prompts.ts";
import { type ScriptedFleet, specOf, startScriptedFleet, vllmPage } from "./prefix/scripted-fleet.ts";

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
    prefixKeyTokens: 0,
    seen,
    choose(_, candidates) {
      const rows = Array.from({ length: candidates.count }, (__, at) => rowOf(candidates, at));
      seen.push(rows);
      const index = take(rows);
      return { index, target: candidates.target[index]!, reason: "random" };
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

const poolOf = (policy: Policy): PoolSettings => ({
  model: "m",
  policy,
  upstreamHeaders: [],
  forwardAuthorization: false,
});

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
    place() {
      throw new Error("selecting places nothing");
    },
    forget() {},
    forgetPlacements() {},
    renew() {},
  };
}

let scripted: ScriptedFleet;
let selector: TargetSelector;
let policy: ReturnType<typeof notingPolicy>;
let targets: () => readonly Target[];

beforeEach(async () => {
  scripted = await startScriptedFleet();
  selector = createTargetSelector(createSeededRandom(1), knowledgeOf({}));
  policy = notingPolicy();
  targets = () => scripted.fleet.pool("m");
});

const select = (restriction: Restriction = none) =>
  selector.select(poolOf(policy), targets(), { features, prompt: undefined }, restriction);
const seenKeys = () => policy.seen.at(-1)?.map(({ key }) => key);

describe("what a policy sees of a target", () => {
  test("its load, its weight and what its metrics say", async () => {
    scripted.answers.a = { "/metrics": vllmPage({ blockSize: 16, blocks: 100 }) };
    await scripted.apply(specOf("a", { weight: 3 }));
    const { load } = scripted.target("a");
    const ticket = load.begin({ promptTokens: 70, uncachedTokens: 50, expectedOutputTokens: 5 });
    load.begin({ promptTokens: 40, uncachedTokens: 40, expectedOutputTokens: 5 });
    ticket.firstToken();
    await scripted.time.advanceAsync(200);
    select();
    expect(policy.seen[0]).toEqual([
      {
        key: "a",
        weight: 3,
        inFlight: load.inFlight,
        pendingPrefillTokens: load.pendingPrefillTokens,
        decodeTokens: load.decodeTokens,
        running: 2,
        waiting: 3,
        kvUse: 0.25,
        kvCapacityTokens: 1_600,
        signalAgeMs: 200,
        inFlightAtSignal: 0,
        matchedTokens: 0,
        matchedCpuTokens: 0,
        matchedDiskTokens: 0,
        matchedExternalTokens: 0,
        matchAgeMs: Number.NaN,
        heldTokens: Number.NaN,
      },
    ]);
    expect([load.inFlight, load.pendingPrefillTokens]).toEqual([2, 40]);
  });

  test("nothing where an engine has no metrics", async () => {
    scripted.answers.a = { "/metrics": 404 };
    await scripted.apply(specOf("a"));
    select();
    const unknown = ["running", "waiting", "kvUse", "kvCapacityTokens", "inFlightAtSignal"] as const;
    for (const column of unknown) expect(policy.seen[0]?.[0]?.[column], column).toBeNaN();
    expect(policy.seen[0]?.[0]?.signalAgeMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("nothing that was left by the candidates of the request before", async () => {
    await scripted.apply(specOf("a"), specOf("b"));
    const known = knowledgeOf({ a: { matchedTokens: 64, heldTokens: 99, matchAgeMs: 5 } });
    selector = createTargetSelector(createSeededRandom(1), known);
    selector.select(poolOf(policy), targets(), { features, prompt }, none);
    expect(policy.seen[0]?.[0]).toMatchObject({ matchedTokens: 64, heldTokens: 99, matchAgeMs: 5 });
    select();
    expect(policy.seen[1]?.[0]).toMatchObject({ matchedTokens: 0, heldTokens: Number.NaN, matchAgeMs: Number.NaN });
  });
});

describe("which targets are candidates", () => {
  test.each<[string, () => void]>([
    ["draining", () => void scripted.fleet.setDraining(scripted.engine("b").id, true)],
    [
      "refused by its breaker",
      () => {
        for (let failure = 0; failure < 5; failure++) scripted.engine("b").breaker.begin()?.failure("upstream_reset");
      },
    ],
  ])("not one that is %s", async (_, change) => {
    await scripted.apply(specOf("a"), specOf("b"), specOf("c"));
    change();
    select();
    expect(seenKeys()).toEqual(["a", "c"]);
  });

  test("not one that is down", async () => {
    await scripted.apply(specOf("a"), specOf("b"));
    scripted.answers.a = { "/health": "refused" };
    await scripted.time.advanceAsync(20_000);
    expect(select()?.target.key).toBe("b");
    expect(seenKeys()).toEqual(["b"]);
  });

  test("not engines that only do prefill, which take no whole request", async () => {
    await scripted.apply(specOf("a", { role: "prefill" }), specOf("b", { role: "decode" }), specOf("c"));
    select();
    expect(seenKeys()).toEqual(["b", "c"]);
  });

  test("not those that have failed this request: ranks count one by one", async () => {
    await scripted.apply(specOf("a", { ranks: 3 }), specOf("b"));
    select({ tried: new Set(["a#1", "b", "no-such-target"]) });
    expect(seenKeys()).toEqual(["a", "a#2"]);
  });

  test("every rank of the only engine that will do", async () => {
    await scripted.apply(specOf("a"), specOf("b", { ranks: 2 }));
    select({ tried: new Set(), onlyEngine: "b" });
    expect(seenKeys()).toEqual(["b", "b#1"]);
  });

  test.each<[string, Restriction]>([
    ["all have been tried", { tried: new Set(["a", "b"]) }],
    ["the only one that will do has been tried", { tried: new Set(["a"]), onlyEngine: "a" }],
    ["the only one that will do is unknown", { tried: new Set(), onlyEngine: "z" }],
  ])("none when %s: the policy is not asked", async (_, restriction) => {
    await scripted.apply(specOf("a"), specOf("b"));
    expect(select(restriction)).toBeUndefined();
    expect(policy.seen).toEqual([]);
  });

  test("none in a pool without targets", () => {
    expect(select()).toBeUndefined();
  });

  test("retries go through all targets, each once", async () => {
    await scripted.apply(specOf("a"), specOf("b", { ranks: 2 }), specOf("c"));
    policy = notingPolicy((rows) => rows.length - 1);
    const tried = new Set<string>();
    for (let next = select({ tried }); next; next = select({ tried })) tried.add(next.target.key);
    expect([...tried]).toEqual(["c", "b#1", "b", "a"]);
  });
});

describe("the choice", () => {
  test("is the target that the policy's own index stands for, whatever was left out before it", async () => {
    await scripted.apply(specOf("a", { role: "prefill" }), specOf("b"), specOf("c"), specOf("d"));
    policy = notingPolicy((rows) => rows.findIndex(({ key }) => key === "d"));
    expect(select({ tried: new Set(["b"]) })).toMatchObject({ target: scripted.target("d"), reason: "random" });
  });

  test("says what is matched at it, in all tiers together", async () => {
    await scripted.apply(specOf("a"), specOf("b"));
    const tiers = { matchedTokens: 16, matchedCpuTokens: 32, matchedDiskTokens: 64, matchedExternalTokens: 128 };
    selector = createTargetSelector(createSeededRandom(1), knowledgeOf({ a: { matchedTokens: 80 }, b: tiers }));
    for (const [index, matchedTokens] of [80, 240].entries()) {
      policy = notingPolicy(() => index);
      const choice = selector.select(poolOf(policy), targets(), { features, prompt }, none);
      expect(choice?.matchedTokens).toBe(matchedTokens);
    }
  });

  test("looks a prompt up once, whatever the number of targets, and not at all without one", async () => {
    await scripted.apply(specOf("a"), specOf("b"), specOf("c"));
    const known = knowledgeOf({ a: { matchedTokens: 80 } });
    selector = createTargetSelector(createSeededRandom(1), known);
    selector.select(poolOf(policy), targets(), { features, prompt }, none);
    expect(known.matched).toEqual([prompt]);
    expect(select()?.matchedTokens).toBe(0);
    expect(known.matched).toHaveLength(1);
  });

  test.each<[string, ChoiceReason]>([
    ["least_work", "least_work"],
    ["cache_aware", "prefix_match"],
    ["epp_weighted", "best_score"],
  ])("%s goes where the prompt is, and elsewhere once that has failed", async (name, reason) => {
    await scripted.apply(specOf("a"), specOf("b"), specOf("c"));
    selector = createTargetSelector(
      createSeededRandom(1),
      knowledgeOf({ b: { matchedTokens: 96, heldTokens: 96 }, c: { matchedTokens: 80, heldTokens: 80 } }),
    );
    const pool = poolOf(createPolicy(name, name === "least_work" ? { "near-tie-tokens": 0 } : {}));
    const at = (tried: readonly string[]) =>
      selector.select(pool, targets(), { features, prompt }, { tried: new Set(tried) });
    expect(at([])).toMatchObject({ target: scripted.target("b"), reason, matchedTokens: 96 });
    expect(at(["b"])).toMatchObject({ target: scripted.target("c"), reason, matchedTokens: 80 });
    expect(at(["b", "c"])).toMatchObject({ target: scripted.target("a"), matchedTokens: 0 });
  });
});
