/** What a decision sees of LoRA adapters, and that routers decide alike about one that nobody has. */
import { createSeededRandom } from "@espalier/common";
import { adapterState, type CandidateSet, createPolicy, type Policy, type RequestFeatures } from "@espalier/policies";
import type { AdapterReading } from "@espalier/workers";
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
