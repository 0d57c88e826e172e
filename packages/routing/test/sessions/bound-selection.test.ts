import { createSeededRandom } from "@espalier/core";
import { createPolicy, type RequestFeatures } from "@espalier/policies";
import { describe, expect, test } from "vitest";
import { explainSelection } from "../../src/explain-selection.ts";
import { createTargetSelector, type Restriction } from "../../src/select-target.ts";
import { createLocalBindings, createSessionBindings, dryRunSessions } from "../../src/session-bindings.ts";
import { knowledgeRig } from "../prefix/knowledge-rig.ts";
import { type ScriptedTarget, scriptedTarget } from "../scripted-target.ts";

const features: RequestFeatures = {
  promptTokens: 160,
  expectedOutputTokens: 10,
  sessionKey: "s",
  prefixKey: undefined,
};

function rigOf(policyName = "sticky", options: Readonly<Record<string, number>> = { "near-tie-tokens": 0 }) {
  const { knowledge, time } = knowledgeRig({ quality: "complete" });
  const sessions = createSessionBindings(createLocalBindings(time.clock));
  const targets = Array.from({ length: 4 }, (_, at) => scriptedTarget(at, `e${at}`));
  const policy = createPolicy(policyName, policyName === "sticky" ? options : {});
  const selectorOf = (of: typeof sessions) =>
    createTargetSelector({ random: createSeededRandom(5), knowledge, sessions: of });
  const selector = selectorOf(sessions);
  const quiet = selectorOf(dryRunSessions(sessions));
  const ask = (changes: Partial<RequestFeatures> = {}) => ({
    features: { ...features, ...changes },
    prompt: undefined,
  });
  return {
    ...{ time, sessions, targets },
    select(
      changes: Partial<RequestFeatures> = {},
      restriction: Partial<Restriction<ScriptedTarget>> = {},
      model = "m",
    ) {
      const found = selector.select({ policy, model }, targets, ask(changes), { tried: new Set(), ...restriction });
      return [found?.target.key, found?.reason];
    },
    explain: () => explainSelection(quiet, { policy, model: "m" }, targets, ask(), { tried: new Set() }),
    boundTo: (model = "m") => sessions.targetOf({ model, key: "s" }),
    /** Makes an engine the one with the most work. */
    burden: (at: number) => targets[at]!.load.begin({ promptTokens: 9_000, expectedOutputTokens: 10 }),
  };
}

describe("a session", () => {
  test("stays where its first request went, whatever work comes there later", () => {
    const { select, burden, boundTo } = rigOf();
    for (const at of [0, 1, 3]) burden(at);
    expect(select()).toEqual(["e2", "session_new"]);
    expect(boundTo()).toBe("e2");
    for (let turn = 0; turn < 3; turn++) {
      burden(2);
      expect(select()).toEqual(["e2", "session_bound"]);
    }
  });

  test("moves when its engine is not usable, and stays where it has moved when that one is back", () => {
    const { select, burden, targets, boundTo } = rigOf();
    for (const at of [1, 2, 3]) burden(at);
    select();
    targets[0]!.usable = false;
    burden(1);
    burden(2);
    expect(select()).toEqual(["e3", "session_moved"]);
    targets[0]!.usable = true;
    expect(select()).toEqual(["e3", "session_bound"]);
    expect(boundTo()).toBe("e3");
  });

  test("moves with a retry, and to the only engine that will do", () => {
    const { select, burden, boundTo } = rigOf();
    for (const at of [1, 2, 3]) burden(at);
    select();
    burden(2);
    burden(3);
    expect(select({}, { tried: new Set(["e0"]) })).toEqual(["e1", "session_moved"]);
    expect(select({}, { onlyEngine: "e3" as string })).toEqual(["e3", "only_candidate"]);
    expect(boundTo()).toBe("e3");
  });

  test("leaves an engine with too many requests", () => {
    const { select, targets } = rigOf();
    const [first] = select();
    const at = targets.findIndex(({ key }) => key === first);
    for (let number = 0; number < 8; number++) targets[at]!.load.begin({ promptTokens: 0, expectedOutputTokens: 1 });
    const [next, reason] = select();
    expect([next === first, reason]).toEqual([false, "session_overflow"]);
    expect(select()).toEqual([next, "session_bound"]);
  });

  test("is another one with another model, and none without a key", () => {
    const { select, boundTo, burden, sessions } = rigOf();
    for (const at of [0, 1, 2]) burden(at);
    expect(select()).toEqual(["e3", "session_new"]);
    burden(3);
    burden(3);
    burden(1);
    burden(2);
    expect(select({}, {}, "another")).toEqual(["e0", "session_new"]);
    expect([boundTo(), boundTo("another")]).toEqual(["e3", "e0"]);
    for (const sessionKey of [undefined, ""]) expect(select({ sessionKey })[1]).toBe("no_session_key");
    expect(sessions.targetOf({ model: "m", key: "" })).toBeUndefined();
  });

  test("is not that of another tenant with the same key", () => {
    const { select, burden } = rigOf();
    for (const at of [0, 1, 3]) burden(at);
    expect(select({ sessionScope: "ada" })).toEqual(["e2", "session_new"]);
    for (let times = 0; times < 3; times++) burden(2);
    expect(select({ sessionScope: "bob" })[1]).toBe("session_new");
    expect(select()[1]).toBe("session_new");
    expect(select({ sessionScope: "ada" })).toEqual(["e2", "session_bound"]);
  });

  test("is forgotten when nothing is heard of it", () => {
    const { select, time } = rigOf();
    select();
    time.advance(14_400_000);
    expect(select()[1]).toBe("session_new");
  });
});

test("sessions begin where the fewest are, and one that has ended makes room for another", () => {
  const { select, sessions, burden } = rigOf("sticky", { "fewest-sessions": 1 });
  burden(3);
  const begun = Array.from({ length: 12 }, (_, at) => select({ sessionKey: `s${at}` })[0]!);
  for (const key of ["e0", "e1", "e2", "e3"]) expect(begun.filter((one) => one === key)).toHaveLength(3);
  sessions.endSession(`s${begun.indexOf("e3")}`, ["m"]);
  expect(select({ sessionKey: "next" })).toEqual(["e3", "session_new"]);
});

test("explaining reads the binding, and binds nothing", () => {
  const { explain, select, boundTo } = rigOf();
  expect(explain()?.explanation.reason).toBe("session_new");
  expect(boundTo()).toBeUndefined();
  const [key] = select();
  const explained = explain()!;
  expect([explained.choice.key, explained.explanation.reason]).toEqual([key, "session_bound"]);
});

test("a policy that binds no sessions leaves them alone", () => {
  const { select, boundTo } = rigOf("least_work");
  for (let turn = 0; turn < 3; turn++) expect(select()[1]).toBe("least_work");
  expect(boundTo()).toBeUndefined();
});

test("without bindings every request of a session is its first", () => {
  const { knowledge } = knowledgeRig({ quality: "complete" });
  const selector = createTargetSelector({ random: createSeededRandom(1), knowledge });
  const pool = { policy: createPolicy("sticky") };
  const targets = [scriptedTarget(0, "a"), scriptedTarget(1, "b")];
  for (let turn = 0; turn < 3; turn++) {
    const found = selector.select(pool, targets, { features, prompt: undefined }, { tried: new Set() });
    expect(found?.reason).toBe("session_new");
  }
});
