/** What a decision sees of LoRA adapters, and that routers decide alike about one that nobody has. */
import { createSeededRandom } from "@espalier/core";
import type { AdapterReading } from "@espalier/engines";
import { adapterState, type CandidateSet, createPolicy, type Policy, type RequestFeatures } from "@espalier/policies";
import { promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createTargetSelector } from "../src/select-target.ts";
import { type ScriptedTarget, scriptedTarget } from "./scripted-target.ts";

type Knowledge = Parameters<typeof createTargetSelector>[0]["knowledge"];

/** Nothing is asked of it without a prompt. */
const noKnowledge: Knowledge = {
  match() {},
  describe() {},
  evidence: () => undefined,
  place() {
    throw new Error("selecting places nothing");
  },
  forget() {},
  forgetPlacements() {},
  reported() {},
  renew() {},
};

const features: RequestFeatures = {
  promptTokens: 500,
  expectedOutputTokens: 10,
  sessionKey: undefined,
  prefixKey: undefined,
};

const reading = (slots: number, running: readonly string[], waiting: readonly string[] = []): AdapterReading => ({
  slots,
  running,
  waiting,
});

const engines = (count: number): ScriptedTarget[] =>
  Array.from({ length: count }, (_, index) => scriptedTarget(index, `engine-${index}`));

/** What decisions see in the column, by target. */
function seenBy(targets: readonly ScriptedTarget[], adapter: string | undefined): number[] {
  let seen: number[] = [];
  const inner = createPolicy("least_work");
  const policy: Policy = {
    ...inner,
    choose(request, candidates: CandidateSet, random) {
      seen = [...candidates.adapterState.subarray(0, candidates.count)];
      return inner.choose(request, candidates, random);
    },
  };
  const selector = createTargetSelector({ random: createSeededRandom(1), knowledge: noKnowledge });
  selector.select({ policy }, targets, { features: { ...features, adapter }, prompt: undefined }, { tried: new Set() });
  return seen;
}

function chosen(targets: readonly ScriptedTarget[], adapter: string, seed: number): ScriptedTarget {
  const selector = createTargetSelector({ random: createSeededRandom(seed), knowledge: noKnowledge });
  const request = { features: { ...features, adapter }, prompt: undefined };
  return selector.select({ policy: createPolicy("least_work") }, targets, request, { tried: new Set() })!.target;
}

describe("the column", () => {
  test("says how each target stands to the adapter that is asked for", () => {
    const targets = engines(5);
    targets[0]!.adapters.accept(reading(2, ["sql"]), 0, true);
    targets[1]!.adapters.accept(reading(2, ["a", "b"], ["sql"]), 0, true);
    targets[2]!.adapters.accept(reading(2, ["a"]), 0, true);
    targets[3]!.adapters.accept(reading(2, ["a", "b"]), 0, true);
    const { active, waiting, room, none } = adapterState;
    expect(seenBy(targets, "sql")).toEqual([active, waiting, room, none, Number.NaN]);
  });

  test("says nothing when none is asked for, and forgets what the request before was for", () => {
    const targets = engines(2);
    for (const { adapters } of targets) adapters.accept(reading(2, ["sql"]), 0, true);
    expect(seenBy(targets, undefined)).toEqual([Number.NaN, Number.NaN]);
    const selector = createTargetSelector({ random: createSeededRandom(1), knowledge: noKnowledge });
    const seen: number[][] = [];
    const inner = createPolicy("least_work");
    const policy: Policy = {
      ...inner,
      choose(request, candidates, random) {
        seen.push([...candidates.adapterState.subarray(0, candidates.count)]);
        return inner.choose(request, candidates, random);
      },
    };
    for (const adapter of ["sql", undefined]) {
      selector.select(
        { policy },
        targets,
        { features: { ...features, adapter }, prompt: undefined },
        { tried: new Set() },
      );
    }
    expect(seen).toEqual([
      [adapterState.active, adapterState.active],
      [Number.NaN, Number.NaN],
    ]);
  });

  test("selecting notes nothing: only what is sent counts", () => {
    const targets = engines(2);
    chosen(targets, "sql", 1);
    for (const { adapters } of targets) expect(adapters.loaded()).toEqual([]);
  });
});

// One router counted 128 ms for loading an adapter, and the others none, at an engine that held 800 tokens of it. Mechanism:
// only what a router had sent itself, or what the engine's page named at that moment, counted as loaded.
describe("an adapter that another router uses", () => {
  /** What a decision sees of `sql` at one target that holds so many tokens of the prompt, of this age. */
  function seenAt(
    { adapters, key, engine, ...rest }: ScriptedTarget,
    held: { readonly tokens: number; readonly ageMs: number },
    useAgeMs = Number.POSITIVE_INFINITY,
  ): number {
    let seen = Number.NaN;
    const inner = createPolicy("least_work");
    const policy: Policy = {
      ...inner,
      choose(request, candidates: CandidateSet, random) {
        seen = candidates.adapterState[0]!;
        return inner.choose(request, candidates, random);
      },
    };
    const knowledge: Knowledge = {
      ...noKnowledge,
      describe(_target, _prompt, candidates, at) {
        candidates.matchedTokens[at] = held.tokens;
        candidates.matchAgeMs[at] = held.ageMs;
      },
    };
    const selector = createTargetSelector({
      ...{ random: createSeededRandom(1), knowledge },
      adapterUseAgeMs: (id, adapter) => (id === engine.id && adapter === "sql" ? useAgeMs : Number.POSITIVE_INFINITY),
    });
    const request = { features: { ...features, adapter: "sql" }, prompt: promptOf(tokensOf("a", 96)) };
    selector.select({ policy }, [{ ...rest, adapters, key, engine }], request, { tried: new Set() });
    return seen;
  }
  const nothing = { tokens: 0, ageMs: Number.NaN };
  const target = (): ScriptedTarget => engines(1)[0]!;

  test("is loaded where the engine holds blocks of it, or was sent some", () => {
    expect(seenAt(target(), nothing)).toBeNaN();
    expect(seenAt(target(), { tokens: 800, ageMs: Number.NaN })).toBe(adapterState.active);
    expect(seenAt(target(), { tokens: 800, ageMs: 300 })).toBe(adapterState.active);
  });

  test("is loaded where a router says that it was used, whatever the prompt", () => {
    expect(seenAt(target(), nothing, 5_000)).toBe(adapterState.active);
  });

  test("is not loaded if as many as there are slots were used since", () => {
    const full = target();
    full.adapters.accept(reading(2, ["a", "b"]), 0, true);
    expect(seenAt(full, { tokens: 800, ageMs: Number.NaN }, 5_000)).toBe(adapterState.none);
  });

  test("still waits if the engine says so, and is not loaded by what an earlier process computed", () => {
    const waiting = target();
    waiting.adapters.accept(reading(2, ["a"], ["sql"]), 0, true);
    expect(seenAt(waiting, { tokens: 800, ageMs: Number.NaN })).toBe(adapterState.waiting);
    const restarted = target();
    restarted.adapters.forget();
    expect(seenAt(restarted, nothing, 5_000)).toBeNaN();
  });
});

test("routers that know nothing of each other send an adapter that nobody has to the same target", () => {
  const names = Array.from({ length: 60 }, (_, number) => `adapter-${number}`);
  const [one, other] = [engines(6), engines(6).toReversed()];
  const homes = names.map((name) => chosen(one, name, 1).key);
  expect(names.map((name) => chosen(other, name, 2).key)).toEqual(homes);
  expect(new Set(homes).size).toBe(6);
});

test("requests one after the other stay where their adapter was sent, as long as it fits", () => {
  const targets = engines(3);
  for (const { adapters } of targets) adapters.accept(reading(3, []), 0, true);
  const homes = new Map<string, string>();
  for (let round = 0; round < 5; round++) {
    for (let number = 0; number < 9; number++) {
      const name = `adapter-${number}`;
      const target = chosen(targets, name, round);
      target.adapters.sent(name);
      expect(homes.get(name) ?? target.key).toBe(target.key);
      homes.set(name, target.key);
    }
  }
  for (const { adapters } of targets) expect(adapters.loaded()).toHaveLength(3);
});
