import { createInferenceTables } from "@espalier/engines";
import { expect, test } from "vitest";
import { loadConfig } from "../src/config/index.ts";
import { readServiceClass } from "../src/routing/service-class.ts";

const noObjectives = createInferenceTables();

const tenantOf = (admission: object, apiKey: string | undefined, headers: Record<string, string>): string => {
  const text = JSON.stringify({ engines: ["http://127.0.0.1:9"], admission });
  const { admission: config } = loadConfig({ file: { path: "router.yaml", text } });
  return readServiceClass(config, headers, { bodyPriority: undefined, apiKey, objectives: noObjectives }).tenant;
};

// Whoever had a key could take another tenant's share, or have one for each request, by naming a tenant in a header.
test.each(["x-espalier-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"])(
  "%s names a tenant where there are no keys, and where it is trusted; else the key does",
  (name) => {
    const headers = { [name]: "theirs" };
    expect(tenantOf({}, undefined, headers)).toBe("theirs");
    expect(tenantOf({}, "own", headers)).toBe("own");
    expect(tenantOf({ "trust-tenant-header": true }, "own", headers)).toBe("theirs");
    expect(tenantOf({ "trust-tenant-header": true }, "own", {})).toBe("own");
  },
);

const classOf = (
  admission: object,
  bodyPriority: number | undefined,
  headers: Record<string, string> = {},
  objectives = noObjectives,
) => {
  const text = JSON.stringify({ engines: ["http://127.0.0.1:9"], admission });
  const { admission: config } = loadConfig({ file: { path: "router.yaml", text } });
  return readServiceClass(config, headers, { bodyPriority, apiKey: undefined, objectives }).className;
};

const threeClasses = { classes: ["now", "soon", "later"].map((name) => ({ name })), "default-class": "soon" };
const lastByDefault = { ...threeClasses, "default-class": "later" };

test.each([
  ["lower-first", threeClasses, -1, "now"],
  ["lower-first", threeClasses, 1, "later"],
  ["higher-first", threeClasses, 1, "now"],
  ["higher-first", threeClasses, -1, "later"],
  ["lower-first", threeClasses, 0, undefined],
  ["lower-first", threeClasses, undefined, undefined],
  ["off", threeClasses, -1, undefined],
  ["lower-first", lastByDefault, 1, undefined],
])("a body's priority, %s, in %j: %s is class %s", (direction, classes, priority, expected) => {
  expect(classOf({ ...classes, "body-priority": direction }, priority)).toBe(expected);
});

test("a header outranks a body's priority", () => {
  const admission = { ...threeClasses, "body-priority": "lower-first" };
  expect(classOf(admission, -1, { "x-espalier-priority": "later" })).toBe("later");
});

test("a client that accepts a late answer gets the lowest class; no tier gets a higher one", () => {
  const text = JSON.stringify({ engines: ["http://127.0.0.1:9"], admission: { "body-priority": "lower-first" } });
  const { admission } = loadConfig({ file: { path: "router.yaml", text } });
  const ofTier = (serviceTier: string, headers = {}) =>
    readServiceClass(admission, headers, { bodyPriority: -1, serviceTier, apiKey: undefined, objectives: noObjectives })
      .className;
  expect(ofTier("flex")).toBe("background");
  expect(["auto", "default", "priority", "scale"].map((tier) => ofTier(tier))).toEqual(Array(4).fill("interactive"));
  expect(ofTier("flex", { "x-espalier-priority": "batch" })).toBe("batch");
});

/** Objectives by name, as an inference pool may have them. */
function objectivesOf(priorities: Readonly<Record<string, number>>) {
  const tables = createInferenceTables();
  tables.replace(
    Object.entries(priorities).map(([name, priority]) => ({
      kind: "objective",
      id: `objective ${name}`,
      name,
      priority,
    })),
  );
  return tables;
}

const five = { classes: ["a", "b", "c", "d", "e"].map((name) => ({ name })), "default-class": "c" };

test.each([
  ["one above and one below 0", { high: 100, low: -7 }, { high: "a", low: "d" }],
  [
    "as many as there are classes",
    { p: 2, q: 1, zero: 0, r: -1, s: -2 },
    { p: "a", q: "b", zero: "c", r: "d", s: "e" },
  ],
  [
    "more than there are classes",
    { p: 30, q: 20, r: 10, s: -1, t: -2, u: -3 },
    { p: "a", q: "b", r: "b", s: "d", t: "e", u: "e" },
  ],
  ["two of one priority", { p: 5, q: 5, r: 4 }, { p: "a", q: "a", r: "b" }],
])("priorities of objectives keep their order in classes: %s", (_, priorities, expected) => {
  const objectives = objectivesOf(priorities);
  const found = Object.keys(priorities).map((name) => [
    name,
    classOf(five, undefined, { "x-llm-d-inference-objective": name }, objectives),
  ]);
  expect(Object.fromEntries(found)).toEqual(expected);
});

test("an objective outranks a body's priority, and a header that names a class outranks both", () => {
  const objectives = objectivesOf({ high: 1, none: 0 });
  const admission = { ...five, "body-priority": "lower-first" };
  const named = (name: string) => ({ "x-llm-d-inference-objective": name });
  expect(classOf(admission, 1, named("high"), objectives)).toBe("a");
  expect(classOf(admission, 1, named("none"), objectives)).toBe("c");
  expect(classOf(admission, 1, { ...named("high"), "x-espalier-priority": "e" }, objectives)).toBe("e");
  expect(classOf(admission, 1, { ...named("high"), "x-smg-priority": "d" }, objectives)).toBe("d");
});

test("an objective that nobody knows counts for nothing, and the earlier header counts where the present one is absent", () => {
  const objectives = objectivesOf({ high: 1, low: -1 });
  expect(classOf(five, undefined, { "x-llm-d-inference-objective": "other" }, objectives)).toBeUndefined();
  expect(classOf(five, undefined, { "x-gateway-inference-objective": "high" }, objectives)).toBe("a");
  const both = { "x-gateway-inference-objective": "high", "x-llm-d-inference-objective": "low" };
  expect(classOf(five, undefined, both, objectives)).toBe("d");
});

test("where the default class is the first or the last, objectives beyond it have the default class", () => {
  const objectives = objectivesOf({ high: 1, low: -1 });
  const of = (defaultClass: string, name: string) =>
    classOf({ ...five, "default-class": defaultClass }, undefined, { "x-llm-d-inference-objective": name }, objectives);
  expect([of("a", "high"), of("a", "low"), of("e", "high"), of("e", "low")]).toEqual(["a", "b", "a", "e"]);
});

test.each(["x-espalier-deadline-ms", "x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"])(
  "%s says when the first token is due",
  (name) => {
    const { admission } = loadConfig({ file: { path: "router.yaml", text: "engines: [http://127.0.0.1:9]" } });
    const other = { bodyPriority: undefined, apiKey: undefined, objectives: noObjectives };
    expect(readServiceClass(admission, { [name]: "250" }, other).deadlineMs).toBe(250);
  },
);
