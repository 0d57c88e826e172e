import { createSeededRandom } from "@espalier/core";
import { createPolicy, type PolicyName, policyNames, type RequestFeatures } from "@espalier/policies";
import { createVirtualTime, promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { dryRunTraffic, explainSelection } from "../src/explain-selection.ts";
import { createPeerTraffic } from "../src/peer-traffic.ts";
import { createTargetSelector } from "../src/select-target.ts";
import { knowledgeRig } from "./prefix/knowledge-rig.ts";
import { type ScriptedTarget, scriptedTarget } from "./scripted-target.ts";
import { nothingShared } from "./shared-load.ts";

const features: RequestFeatures = {
  promptTokens: 160,
  expectedOutputTokens: 10,
  sessionKey: "s",
  prefixKey: 7,
};
const none = { tried: new Set<string>() };

function rigOf(name: PolicyName, count = 4) {
  const { knowledge, announce, time } = knowledgeRig({ quality: "complete" });
  const targets = Array.from({ length: count }, (_, at) => scriptedTarget(at, `e${at}`));
  const selector = createTargetSelector({ random: createSeededRandom(5), knowledge });
  const policy = createPolicy(name);
  const prompt = promptOf(tokensOf("a", 160));
  const request = { features, prompt };
  return {
    ...{ knowledge, announce, time, targets, policy, prompt },
    explain: (restriction = none) => explainSelection(selector, { policy }, targets, request, restriction),
    select: () => selector.select({ policy }, targets, request, none),
  };
}

describe.each(policyNames)("%s", (name) => {
  test("chooses what was explained with the probability that was said, and explaining changes nothing", () => {
    const { explain, select, targets } = rigOf(name);
    targets[0]!.load.begin({ promptTokens: 5_000, expectedOutputTokens: 10 });
    for (let turn = 0; turn < 12; turn++) {
      const first = explain()!;
      expect(explain()).toEqual(first);
      const { target } = select()!;
      const at = first.targets.indexOf(target as ScriptedTarget);
      const { probability } = first.explanation.candidates[at]!;
      expect(probability).toBeGreaterThan(0);
      const most = Math.max(...first.explanation.candidates.map((one) => one.probability));
      expect(first.explanation.candidates[first.targets.indexOf(first.choice)]!.probability).toBe(most);
      if (most === 1) expect(first.choice).toBe(target);
    }
  });
});

test("sees what a decision sees: matches, and only those who may take the request", () => {
  const { explain, announce, targets, prompt, select } = rigOf("cache_aware");
  announce(prompt, 0, 8);
  targets[3]!.usable = false;
  const seen = explain({ tried: new Set(["e2"]) })!;
  expect(seen.targets.map(({ key }) => key)).toEqual(["e0", "e1"]);
  expect(seen.explanation.candidates[0]?.signals.matchedTokens).toBe(128);
  expect([seen.explanation.reason, seen.choice.key]).toEqual(["prefix_match", "e0"]);
  expect(select()?.target.key).toBe("e0");
});

test("is undefined where no target is usable", () => {
  const { explain, targets } = rigOf("least_work");
  for (const target of targets) target.usable = false;
  expect(explain()).toBeUndefined();
});

test("what other routers may have sent is read, and nothing is expected of them for what is not sent", () => {
  const { knowledge, targets, policy, prompt } = rigOf("least_work");
  const time = createVirtualTime();
  const shared = nothingShared(4);
  shared.inFlight[0] = 3;
  const traffic = createPeerTraffic(time.clock, shared, (target) => target === 1);
  const selector = createTargetSelector({
    random: createSeededRandom(1),
    knowledge,
    shared,
    traffic: dryRunTraffic(traffic),
  });
  const explain = () => explainSelection(selector, { policy }, targets, { features, prompt }, none)!;
  expect(explain().estimatedPeerTokens).toBe(0);
  traffic.sent({ target: targets[1]!.index, uncachedTokens: 10_000, matchedTokens: 0 });
  const expected = traffic.estimatedPeerTokens();
  expect(expected).toBeGreaterThan(0);
  for (let again = 0; again < 3; again++) {
    const { estimatedPeerTokens, explanation } = explain();
    expect(estimatedPeerTokens).toBe(expected);
    expect(explanation.candidates.map(({ signals }) => signals.own)).toEqual([0, 1, 0, 0]);
    expect(explanation.candidates[0]?.signals.inFlight).toBe(3);
  }
  expect(traffic.estimatedPeerTokens()).toBe(expected);
});

describe("the evidence of a target", () => {
  test("is what is announced by tier and what was sent there, of the prompt that was looked up last", () => {
    const { knowledge, announce, time, targets, prompt } = rigOf("cache_aware");
    const [target, other] = [targets[0]!, targets[1]!];
    const nothing = { gpu: 0, cpu: 0, disk: 0, external: 0 };
    announce(prompt, 0, 4);
    announceSlow();
    knowledge.place(target, promptOf(tokensOf("a", 96)), 0);
    time.advance(250);
    knowledge.match(prompt);
    expect(knowledge.evidence(target.index)).toEqual({
      quality: "complete",
      factBlocks: { gpu: 4, cpu: 2, disk: 0, external: 1 },
      heldBlocks: 7,
      pools: [],
      placement: { blocks: 6, confirmedBlocks: 0, ageMs: 250, by: 0 },
    });
    const unknown = { quality: "complete", factBlocks: nothing, heldBlocks: 0, pools: [], placement: null };
    expect(knowledge.evidence(other.index)).toEqual(unknown);
    knowledge.match(promptOf(tokensOf("b", 160)));
    expect(knowledge.evidence(target.index)).toMatchObject({ factBlocks: nothing, placement: null });

    function announceSlow(): void {
      announce(prompt, 4, 6, "cpu");
      announce(prompt, 0, 7, "external");
    }
  });

  test("is told whatever it is worth, and not of targets that nothing is kept of", () => {
    const { knowledge, announce, target } = knowledgeRig({ quality: "void" });
    const prompt = promptOf(tokensOf("a", 160));
    announce(prompt, 0, 4);
    knowledge.match(prompt);
    expect(knowledge.evidence(target.index)).toMatchObject({ quality: "void", factBlocks: { gpu: 4 } });
    expect(knowledge.evidence(scriptedTarget(4_096, "beyond").index)).toBeUndefined();
  });
});
