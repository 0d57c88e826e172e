import { describe, expect, test } from "vitest";
import { createClosedLoop } from "../../src/clients/loops.ts";
import {
  type AgentParameters,
  agentScripts,
  type ChatParameters,
  chatScripts,
  type DocumentParameters,
  documentScripts,
  prefixGroupScripts,
  type ToolClusterParameters,
  toolClusterScripts,
} from "../../src/clients/scripts.ts";
import type { ScriptOf } from "../../src/clients/session.ts";
import { bySession, hashesOf, recordRun, type SentRequest, sharedBlocks } from "./recorded-run.ts";

const answerMs = 100;

const run = (scriptOf: ScriptOf, sessions: number): readonly SentRequest[] =>
  recordRun(createClosedLoop({ seed: 1, sessions, clients: sessions, scriptOf, limits: {} }), { answerMs }).sent;

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Pauses before the follow-ups of all sessions. */
const pauses = (sent: readonly SentRequest[]): readonly number[] =>
  [...bySession(sent).values()].flatMap((requests) =>
    requests.slice(1).map(({ sentMs }, at) => sentMs - answerMs - requests[at]!.sentMs),
  );

/** Every follow-up begins with the whole earlier prompt and answer. */
function expectGrowing(sent: readonly SentRequest[]): void {
  for (const requests of bySession(sent).values()) {
    for (const [at, later] of requests.slice(1).entries()) {
      const earlier = requests[at]!;
      expect(later.promptTokens).toBeGreaterThanOrEqual(earlier.promptTokens + earlier.outputTokens);
      expect(sharedBlocks(earlier.chain, later.chain)).toBe(earlier.chain.length / 2);
    }
  }
}

/** Past the first `blocks` blocks no two sessions have a hash in common. */
function expectApartPast(sent: readonly SentRequest[], blocks: (request: SentRequest) => number): void {
  const owner = new Map<number, number>();
  let foreign = 0;
  for (const request of sent) {
    for (const hash of hashesOf(request.chain).slice(blocks(request))) {
      const known = owner.get(hash) ?? request.session;
      if (known !== request.session) foreign += 1;
      owner.set(hash, known);
    }
  }
  expect(foreign).toBe(0);
}

test("prefix groups: requests of a group share its prefix, and nothing else is shared", () => {
  const parameters = { groups: 4, prefixTokens: 320, ownTokens: 64, outputTokens: 32 };
  const sent = run(prefixGroupScripts(parameters, 1), 400);
  const groups = new Map<number, number>();
  for (const { chain, promptTokens, outputTokens, turn } of sent) {
    expect([promptTokens, outputTokens, turn, chain.length / 2]).toEqual([384, 32, 0, 26]);
    const first = hashesOf(chain)[0]!;
    groups.set(first, (groups.get(first) ?? 0) + 1);
  }
  expect(groups.size).toBe(4);
  for (const size of groups.values()) expect(Math.abs(size - 100)).toBeLessThan(45);
  expectApartPast(sent, () => 20);
  const inTurn = run(
    prefixGroupScripts(parameters, 1, (request) => request % 2),
    10,
  );
  expect([sharedBlocks(inTurn[0]!.chain, inTurn[2]!.chain), sharedBlocks(inTurn[0]!.chain, inTurn[1]!.chain)]).toEqual([
    20, 0,
  ]);
});

describe("chats", () => {
  const parameters: ChatParameters = {
    groups: 5,
    sharedTokens: 160,
    sharedShare: 0.7,
    firstTokens: 96,
    newTokens: 48,
    outputTokens: 32,
    followups: { mean: 0.5 },
    thinkMeanMs: 2_000,
    thinksFirst: false,
  };

  test("grow by message and answer; sessions share the beginning of their group at most", () => {
    const sent = run(chatScripts(parameters, { seed: 1 }), 2_000);
    expectGrowing(sent);
    const firsts = sent.filter(({ turn }) => turn === 0);
    const withBeginning = firsts.filter(({ promptTokens }) => promptTokens === 256);
    expect(withBeginning.length / firsts.length).toBeCloseTo(0.7, 1);
    expect(firsts.every(({ promptTokens }) => promptTokens === 256 || promptTokens === 96)).toBe(true);
    expect(new Set(withBeginning.map(({ chain }) => hashesOf(chain)[9]!)).size).toBe(5);
    const begins = new Set(withBeginning.map(({ session }) => session));
    expectApartPast(sent, ({ session }) => (begins.has(session) ? 10 : 0));
    expect(sent.length / firsts.length).toBeCloseTo(1.5, 1);
    expect(Math.abs(mean(pauses(sent)) / 2_000 - 1)).toBeLessThan(0.15);
    expect(firsts.every(({ sentMs }) => sentMs === 0)).toBe(true);
  });

  test("of a fixed length, in groups of so many, that do not begin in step", () => {
    const fixed = { ...parameters, sharedShare: 1, followups: { count: 3 }, thinksFirst: true };
    const sent = run(chatScripts(fixed, { seed: 1, groupSize: 4, className: "interactive" }), 40);
    expect(sent).toHaveLength(160);
    expect(sent.every(({ className }) => className === "interactive")).toBe(true);
    const beginnings = [...bySession(sent).entries()]
      .toSorted(([one], [other]) => one - other)
      .map(([, [first]]) => hashesOf(first!.chain)[0]!);
    for (const [session, beginning] of beginnings.entries()) {
      const group = Math.floor(session / 4) % 5;
      expect(beginning).toBe(beginnings[4 * group]);
    }
    expect(new Set(beginnings).size).toBe(5);
    expect(new Set(sent.filter(({ turn }) => turn === 0).map(({ sentMs }) => sentMs)).size).toBe(40);
  });
});

test("agents: steps, tool answers and tool times lie in their bounds, around their medians", () => {
  const parameters: AgentParameters = {
    systemTokens: 800,
    taskTokens: 150,
    steps: { median: 12, sigma: 0.5, least: 4, most: 24 },
    toolTokens: { median: 70, sigma: 0.8, least: 20, most: 400 },
    outputTokens: 15,
    toolTimeMs: { least: 1_000, most: 20_000 },
  };
  const sent = run(agentScripts(parameters, 1), 200);
  expectGrowing(sent);
  expectApartPast(sent, () => 50);
  const trajectories = [...bySession(sent).values()];
  const steps = trajectories.map(({ length }) => length).toSorted((a, b) => a - b);
  expect(steps[0]).toBeGreaterThanOrEqual(4);
  expect(steps.at(-1)).toBeLessThanOrEqual(24);
  expect(Math.abs(steps[100]! - 12)).toBeLessThanOrEqual(2);
  const added = trajectories.flatMap((requests) =>
    requests.slice(1).map(({ promptTokens }, at) => promptTokens - requests[at]!.promptTokens - 15),
  );
  expect(Math.min(...added)).toBeGreaterThanOrEqual(20);
  expect(Math.max(...added)).toBeLessThanOrEqual(400);
  const taken = pauses(sent);
  expect(Math.min(...taken)).toBeGreaterThan(999);
  expect(Math.max(...taken)).toBeLessThan(20_001);
  expect(Math.abs(mean(taken) / 10_500 - 1)).toBeLessThan(0.05);
  for (const [first] of trajectories) expect(first!.promptTokens).toBe(950);
});

describe("questions about documents", () => {
  const parameters: DocumentParameters = {
    systemTokens: 160,
    documents: 20,
    zipf: 1,
    documentTokens: { least: 320, most: 960 },
    perPrompt: { least: 2, most: 4 },
    questionTokens: { least: 16, most: 32 },
    outputTokens: { least: 16, most: 48 },
  };

  test("begin with the system prompt and then a popular document", () => {
    const sent = run(documentScripts(parameters, 1), 600);
    const firsts = new Map<number, number>();
    for (const { chain, promptTokens, outputTokens } of sent) {
      expect(promptTokens).toBeGreaterThanOrEqual(160 + 2 * 320 + 16);
      expect(promptTokens).toBeLessThanOrEqual(160 + 4 * 960 + 32);
      expect(outputTokens).toBeGreaterThanOrEqual(16);
      expect(outputTokens).toBeLessThanOrEqual(48);
      const first = hashesOf(chain)[10]!;
      firsts.set(first, (firsts.get(first) ?? 0) + 1);
      expect(sharedBlocks(sent[0]!.chain, chain)).toBeGreaterThanOrEqual(10);
    }
    expect(firsts.size).toBe(20);
    const often = [...firsts.values()].toSorted((a, b) => b - a);
    expect(often[0]! / 600).toBeCloseTo(0.28, 1);
    expect(often[0]! / often[1]!).toBeGreaterThan(1.4);
  });

  test("have documents of one length for all who ask, and none twice in a prompt", () => {
    const all = {
      ...parameters,
      documents: 4,
      perPrompt: { least: 9, most: 9 },
      questionTokens: { least: 5, most: 5 },
    };
    const sent = run(documentScripts(all, 3), 50);
    expect(new Set(sent.map(({ promptTokens }) => promptTokens)).size).toBe(1);
  });
});

test("tool clusters: shares of the kinds, their beginnings, and short answers", () => {
  const parameters: ToolClusterParameters = {
    clusters: [
      { share: 0.46, tokens: 64 },
      { share: 0.39, tokens: 640 },
      { share: 0.15, tokens: 320 },
    ],
    firstTokens: { median: 200, sigma: 0.9, least: 20, most: 2_000 },
    newTokens: { median: 50, sigma: 0.9, least: 10, most: 500 },
    outputTokens: { median: 5, sigma: 1, least: 1, most: 60 },
    meanFollowups: 0.6,
    pauseMeanMs: 5_000,
  };
  const sent = run(toolClusterScripts(parameters, 1), 1_500);
  expectGrowing(sent);
  const kinds = new Map<number, SentRequest[]>();
  for (const request of sent.filter(({ turn }) => turn === 0)) {
    const first = hashesOf(request.chain)[0]!;
    kinds.set(first, [...(kinds.get(first) ?? []), request]);
  }
  const bySize = [...kinds.values()].toSorted((a, b) => b.length - a.length);
  expect(bySize).toHaveLength(3);
  for (const [at, { share, tokens }] of parameters.clusters.entries()) {
    expect(Math.abs(bySize[at]!.length / 1_500 - share)).toBeLessThan(0.05);
    expect(sharedBlocks(bySize[at]![0]!.chain, bySize[at]![1]!.chain)).toBe(tokens / 16);
  }
  expect(Math.max(...sent.map(({ outputTokens }) => outputTokens))).toBeLessThanOrEqual(60);
  expect(Math.min(...sent.map(({ outputTokens }) => outputTokens))).toBeGreaterThanOrEqual(1);
  expect(sent.length / 1_500).toBeCloseTo(1.6, 1);
  expect(Math.abs(mean(pauses(sent)) / 5_000 - 1)).toBeLessThan(0.15);
});

test("agents in groups share their task, and draw answers and tool times", () => {
  const answers = { median: 300, sigma: 0.8, least: 30, most: 3_000 };
  const sent = run(
    agentScripts(
      {
        ...{ systemTokens: 160, taskTokens: 320, groupSize: 4, outputTokens: answers },
        steps: { median: 3, sigma: 0.5, least: 2, most: 6 },
        toolTokens: { median: 100, sigma: 1, least: 10, most: 1_000 },
        toolTimeMs: { median: 2_000, sigma: 1, least: 100, most: 60_000 },
      },
      1,
    ),
    40,
  );
  expectGrowing(sent);
  const firsts = sent.filter(({ turn }) => turn === 0);
  for (const [at, { chain, promptTokens, session }] of firsts.entries()) {
    expect([session, promptTokens]).toEqual([at, 480]);
    const next = firsts[at + 1];
    if (next) expect(sharedBlocks(chain, next.chain)).toBe(at % 4 === 3 ? 10 : 30);
  }
  const lengths = sent.map(({ outputTokens }) => outputTokens);
  expect([Math.min(...lengths) >= 30, Math.max(...lengths) <= 3_000, new Set(lengths).size > 20]).toEqual([
    true,
    true,
    true,
  ]);
  expect(new Set(pauses(sent).map(Math.round)).size).toBeGreaterThan(20);
});
