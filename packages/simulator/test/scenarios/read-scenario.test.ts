import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { scenarioNames } from "../../src/scenarios/catalogue.ts";
import { readScenario } from "../../src/scenarios/read-scenario.ts";
import type { WorkloadOptions } from "../../src/scenarios/scenario.ts";
import { recordRun } from "../clients/recorded-run.ts";

const root = new URL("../../../../", import.meta.url);
const textOf = (path: string): string => readFileSync(new URL(path, root), "utf8");
const read = (value: unknown) => readScenario(JSON.stringify(value), "mine.json");

const prompts = { kind: "prompts", prompts: 1, sharedTokens: 0, ownTokens: { mean: 100, sigma: 0 } };
const requests = { ...prompts, outputTokens: { mean: 10, sigma: 0 } };
const clients = { loop: "open", startsPerS: 5, requests };
const good = { name: "mine", summary: "Mine.", fleet: { preset: "a10g-7b", engines: 2 }, clients };

const sentBy = (createWorkload: (options: WorkloadOptions) => Parameters<typeof recordRun>[0], durationS = 40) =>
  recordRun(createWorkload({ seed: 1, engines: 2, kvTokens: 60_000, scale: 1, durationS })).sent;

test("every file of the folder is a scenario, and every scenario has its file", () => {
  const files = readdirSync(new URL("packages/simulator/scenarios", root));
  expect(files.toSorted()).toEqual(scenarioNames.map((name) => `${name}.json`).toSorted());
});

test("the guide shows the example that is shipped, which can be read", () => {
  const text = textOf("examples/scenarios/support.json");
  const [, shown] = /```json\n(\{\s+"name": "support"[\s\S]*?)```/.exec(textOf("docs/guides/scenarios.md"))!;
  expect(JSON.parse(shown!)).toEqual(JSON.parse(text));
  const { variants, durationS } = readScenario(text, "support.json");
  expect([variants.map(({ name }) => name), durationS]).toEqual([["twice-the-memory", "twice-the-chats"], 120]);
});

test.each(["async", "batch", "groups", "replay"])(
  "the rollouts of %s can be read, and their variants make workloads",
  (name) => {
    const path = `examples/scenarios/rollouts-${name}.json`;
    const { variants, createWorkload } = readScenario(textOf(path), path);
    const options = { seed: 1, engines: 8, kvTokens: 100_000, scale: 1 };
    for (const create of [createWorkload, ...variants.flatMap((variant) => variant.createWorkload ?? [])]) {
      expect(create(options).expectedRequests).toBeGreaterThan(40);
    }
  },
);

test("a file names the least: the rest is usual", () => {
  expect(read(good)).toMatchObject({
    ...{ name: "mine", isOpenLoop: true, variants: [], published: [] },
    fleet: { preset: "a10g-7b", engines: 2, routers: 1, parameters: {} },
    policies: ["round_robin", "predicted_latency"],
  });
});

describe("a variant's clients", () => {
  const of = (changes: object) => {
    const [variant] = read({ ...good, variants: [{ name: "v", clients: changes }] }).variants;
    return sentBy(variant!.createWorkload!);
  };

  test("keep what they do not name", () => {
    const sent = of({ requests: { ownTokens: { mean: 300, sigma: 0 } } });
    expect(new Set(sent.map(({ promptTokens, outputTokens }) => `${promptTokens} ${outputTokens}`))).toEqual(
      new Set(["300 10"]),
    );
    expect(of({ startsPerS: 10 }).length / sentBy(read(good).createWorkload).length).toBeCloseTo(2, 0);
  });

  test("are all new with another loop, and requests are with another kind", () => {
    const repeats = { kind: "repeats", times: 2, tokens: 64, pauseMs: 0 };
    expect(of({ requests: repeats }).every(({ promptTokens }) => promptTokens === 64)).toBe(true);
    expect(of({ loop: "closed", clients: 3, requests: repeats })).toHaveLength(3);
    expect(() => of({ loop: "closed", clients: 3 })).toThrow(
      "variants[0].clients.requests: must be an object, is absent",
    );
  });
});

test("rates for a number of engines follow those of the run", () => {
  const perEngines = read({ ...good, clients: { ...clients, perEngines: 1 } });
  expect(sentBy(perEngines.createWorkload).length / sentBy(read(good).createWorkload).length).toBeCloseTo(2, 0);
});

test("of each session of a mix one part is drawn, by its share", () => {
  const long = { ...requests, ownTokens: { mean: 1_000, sigma: 0 } };
  const parts = [
    { share: 3, requests },
    { share: 1, requests: long },
  ];
  const mixed = read({ ...good, clients: { ...clients, requests: { kind: "mix", parts } } });
  const sent = sentBy(mixed.createWorkload, 400);
  const longShare = sent.filter(({ promptTokens }) => promptTokens === 1_000).length / sent.length;
  expect(longShare).toBeCloseTo(0.25, 1);
});

test.each([
  [{ ...good, name: undefined }, "name", "must be a string, is absent"],
  [{ ...good, client: clients }, "client", "is not known; did you mean clients?"],
  [{ ...good, fleet: { preset: "a10g" } }, "fleet.engines", "must be a whole number from 1 to 16384, is absent"],
  [{ ...good, clients: { ...clients, loop: "opn" } }, "clients.loop", "did you mean open?"],
  [{ ...good, clients: { ...clients, startsPerS: 0 } }, "clients.startsPerS", "must be a number above 0, is 0"],
  [{ ...good, clients: { ...clients, requests: 3 } }, "clients.requests", "must be an object, is 3"],
  [{ ...good, clients: { ...clients, requests: null } }, "clients.requests", "must be an object, is null"],
  [{ ...good, clients: { ...clients, requests: { kind: "chat" } } }, "clients.requests.kind", "did you mean chats?"],
  [
    { ...good, clients: { ...clients, requests: { ...requests, ownTokens: { mean: 3 } } } },
    "clients.requests.ownTokens.sigma",
    "is absent",
  ],
  [
    { ...good, clients: { ...clients, requests: { kind: "mix", parts: [{ share: 1, requests: { kind: "mix" } }] } } },
    "clients.requests.parts[0].requests.kind",
    "must be one of chats",
  ],
  [{ ...good, variants: [{ name: "v", splitTokens: "ever" }] }, "variants[0].splitTokens", "whole number"],
  [{ ...good, fault: "fire" }, "fault", "must be one of partition"],
  [{ ...good, sharing: ["mash"] }, "sharing[0]", "did you mean mesh?"],
  [[], "mine.json", "must be an object"],
])("is refused with file and field: %j", (value, param, problem) => {
  expect(() => read(value)).toThrow(
    expect.objectContaining({ code: "config_invalid", param, message: expect.stringContaining(problem) }),
  );
});

test("clients that replay a trace say which when it is missing", () => {
  const replayed = read({ ...good, trace: "mine.jsonl.gz", clients: { loop: "trace" } });
  expect(() => sentBy(replayed.createWorkload)).toThrow("mine replays mine.jsonl.gz: name the file");
});
