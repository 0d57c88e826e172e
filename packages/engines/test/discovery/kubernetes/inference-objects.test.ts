import type { ApiObject } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  createInferenceObjectSource,
  type InferenceObject,
  type InferenceObjectSourceOptions,
} from "../../../src/discovery/index.ts";
import { createInferenceObjectRig } from "./rig.ts";

const collection = (group: string, plural: string): string => `/apis/${group}/v1alpha2/namespaces/ai/${plural}`;
const objectives = collection("llm-d.ai", "inferenceobjectives");
const rewrites = collection("llm-d.ai", "inferencemodelrewrites");
const oldObjectives = collection("inference.networking.x-k8s.io", "inferenceobjectives");
const oldRewrites = collection("inference.networking.x-k8s.io", "inferencemodelrewrites");
const minute = 60_000;

type Options = Partial<InferenceObjectSourceOptions>;

/** A source for the pool `chat`, in a cluster that has both kinds of llm-d unless told otherwise. */
function createRig({
  kinds = [objectives, rewrites],
  ...options
}: Options & { readonly kinds?: readonly string[] } = {}) {
  const rig = createInferenceObjectRig((ports, logger) =>
    createInferenceObjectSource(ports, {
      ...{ namespace: "ai", pool: "chat", objectives: true, modelRewrites: true, logger },
      ...options,
    }),
  );
  for (const kind of kinds) rig.api.serve(kind);
  return {
    ...rig,
    latest: (): readonly InferenceObject[] => rig.recorder.specs.at(-1) ?? [],
    logged: (level: string) => rig.logger.lines.filter((line) => line.level === level),
  };
}

const objective = (name: string, priority?: number, poolRef: object = { name: "chat" }): ApiObject => ({
  metadata: { name },
  spec: { poolRef, ...(priority === undefined ? {} : { priority }) },
});

const rewrite = (name: string, rules: readonly object[], poolRef: object = { name: "chat" }): ApiObject => ({
  metadata: { name, namespace: "ai", creationTimestamp: "2026-01-01T00:00:00Z" },
  spec: { poolRef, rules },
});

const matching = (...values: readonly string[]) => values.map((value) => ({ model: { value } }));

test("objectives of the pool are listed by their priorities, and changes come as they happen", async () => {
  const { start, api, latest, recorder, settle } = createRig();
  api.put(objectives, objective("urgent", 10));
  api.put(objectives, objective("plain"));
  api.put(objectives, objective("elsewhere", 5, { name: "other" }));
  await start();
  expect(recorder.lists.at(-1)).toBe("plain=0 urgent=10");
  api.put(objectives, objective("urgent", -10));
  api.put(objectives, objective("elsewhere", 5));
  await settle();
  expect(recorder.lists.at(-1)).toBe("elsewhere=5 plain=0 urgent=-10");
  api.remove(objectives, "plain");
  api.put(objectives, objective("elsewhere", 5, { name: "other" }));
  await settle();
  expect(latest()).toEqual([{ kind: "objective", id: "objective urgent", name: "urgent", priority: -10 }]);
});

test.each([
  ["the default group and kind", { name: "chat" }, true],
  ["v1", { name: "chat", group: "inference.networking.k8s.io", kind: "InferencePool" }, true],
  ["v1alpha2", { name: "chat", group: "inference.networking.x-k8s.io" }, true],
  ["another group", { name: "chat", group: "example.org" }, false],
  ["another kind", { name: "chat", kind: "Service" }, false],
  ["another pool", { name: "chat2" }, false],
  ["nothing", {}, false],
])("a reference to %s", async (_, poolRef, counts) => {
  const { start, api, recorder } = createRig();
  api.put(objectives, objective("one", 1, poolRef));
  api.put(rewrites, rewrite("two", [{ targets: [{ modelRewrite: "m" }] }], poolRef));
  await start();
  expect(recorder.lists.at(-1)).toBe(counts ? "one=1 two:*>m" : "");
});

test("what is being deleted does not count", async () => {
  const { start, api, recorder, settle } = createRig();
  api.put(objectives, objective("one", 1));
  await start();
  const { metadata, ...rest } = objective("one", 1);
  api.put(objectives, { metadata: { ...metadata, deletionTimestamp: "2026-01-01T00:00:00Z" }, ...rest });
  await settle();
  expect(recorder.lists.at(-1)).toBe("");
});

test("rewrites have rules with models and weighted targets, or for all models", async () => {
  const { start, api, latest, logged } = createRig();
  const targets = [
    { modelRewrite: "big", weight: 9 },
    { modelRewrite: "small", weight: 1 },
  ];
  api.put(rewrites, rewrite("a", [{ matches: matching("x", "y"), targets }, { targets: [{ modelRewrite: "m" }] }]));
  await start();
  expect(latest()).toEqual([
    {
      ...{ kind: "rewrite", id: "rewrite ai/a", name: "a", createdAt: "2026-01-01T00:00:00Z" },
      rules: [
        {
          models: ["x", "y"],
          targets: [
            ...[
              { model: "big", weight: 9 },
              { model: "small", weight: 1 },
            ],
          ],
        },
        { models: [], targets: [{ model: "m", weight: 1 }] },
      ],
    },
  ]);
  expect(logged("warn")).toEqual([]);
});

test.each([
  ["no target", { matches: matching("x"), targets: [] }, "a:", "no target"],
  [
    "a target without a model",
    { targets: [{ weight: 1 }, { modelRewrite: "m", weight: 1 }] },
    "a:*>m",
    "a target without",
  ],
  [
    "a weight at one target only",
    { targets: [{ modelRewrite: "m", weight: 5 }, { modelRewrite: "n" }] },
    "a:*>m",
    "a target without a model, or without a weight where others have one",
  ],
  [
    "a match of another type",
    { matches: [{ model: { type: "Prefix", value: "x" } }], targets: [{ modelRewrite: "m" }] },
    "a:",
    "Exact",
  ],
  ["a match without a model", { matches: [{}], targets: [{ modelRewrite: "m" }] }, "a:", "names no model"],
])("%s does not count, is logged once, and makes no rule for all models", async (_, rule, shown, problem) => {
  const { start, api, recorder, logged, settle } = createRig();
  api.put(rewrites, rewrite("a", [rule]));
  await start();
  expect(recorder.lists.at(-1)).toBe(shown);
  api.put(rewrites, rewrite("b", [{ targets: [{ modelRewrite: "m" }] }]));
  await settle();
  expect(recorder.lists.at(-1)).toBe(`${shown} b:*>m`);
  const problems = logged("warn").map(({ fields }) => String(fields.problem));
  expect(problems.filter((text) => text.startsWith("a: rules[0]: ") && text.includes(problem))).toHaveLength(1);
});

test("a rewrite's rules, models and targets beyond their bounds are left out, and what is left counts", async () => {
  const { start, api, latest, logged } = createRig();
  const names = (count: number) => Array.from({ length: count }, (_, at) => `m${at}`);
  const target = { modelRewrite: "m" };
  api.put(
    rewrites,
    rewrite(
      "rules",
      names(65).map((name) => ({ matches: matching(name), targets: [target] })),
    ),
  );
  api.put(rewrites, rewrite("models", [{ matches: matching(...names(257)), targets: [target] }]));
  api.put(rewrites, rewrite("targets", [{ targets: names(101).map((modelRewrite) => ({ modelRewrite })) }]));
  api.put(rewrites, rewrite("long", [{ matches: matching("x".repeat(257), "y"), targets: [target] }]));
  api.put(
    rewrites,
    rewrite("just", [...names(64).map(() => ({ targets: names(100).map((one) => ({ modelRewrite: one })) }))]),
  );
  await start();
  const rulesOf = (name: string) =>
    latest().flatMap((one) => (one.kind === "rewrite" && one.name === name ? one.rules : []));
  expect(rulesOf("rules")).toHaveLength(64);
  expect(rulesOf("models")[0]?.models).toHaveLength(256);
  expect(rulesOf("targets")[0]?.targets).toHaveLength(100);
  expect(rulesOf("long")[0]?.models).toEqual(["y"]);
  expect(
    logged("warn")
      .map(({ fields }) => fields.problem)
      .sort(),
  ).toEqual([
    "long: rules[0]: a match that is not of type Exact, or names no model",
    "models: rules[0]: models beyond 256",
    "rules: rules beyond 64",
    "targets: rules[0]: targets beyond 100",
  ]);
});

test("objects of a kind beyond 1,024 in the namespace are reported and left out, until others go", async () => {
  const { start, api, latest, messages, settle, recorder } = createRig();
  for (let at = 0; at < 1_025; at++) api.put(objectives, objective(`o${String(at).padStart(4, "0")}`, at));
  await start();
  expect(latest()).toHaveLength(1_024);
  expect(messages()).toEqual([
    "requests of inference pool ai/chat: inference objectives, count: more than 1024; the rest is ignored",
  ]);
  api.remove(objectives, "o0000");
  await settle(minute);
  expect(latest().map(({ name }) => name)).toContain("o1024");
  expect(recorder.recoveries).toBe(1);
});

test("that a cluster has neither kind is normal: it is logged once, and both are found when they are installed", async () => {
  const { start, api, latest, messages, logged, settle, recorder, time } = createRig({ kinds: [] });
  await start();
  expect(time.clock.nowMs()).toBeLessThan(1_000);
  expect([latest(), messages()]).toEqual([[], []]);
  await settle(5 * minute);
  expect(logged("info").map(({ message }) => message)).toEqual([
    "the cluster has no inference objectives",
    "the cluster has no inference model rewrites",
  ]);
  // Each is asked for about twice a minute, in both groups.
  const asked = api.requests.filter(({ kind }) => kind === "list").length;
  expect(asked).toBeGreaterThan(4 * 6);
  expect(asked).toBeLessThan(4 * 20);
  api.put(objectives, objective("urgent", 1));
  await settle(minute);
  expect(recorder.lists.at(-1)).toBe("urgent=1");
  expect(messages()).toEqual([]);
});

test("a kind that is uninstalled has no objects any more", async () => {
  const { start, api, recorder, settle, messages, logged } = createRig({ kinds: [objectives] });
  api.put(objectives, objective("urgent", 1));
  await start();
  expect(recorder.lists.at(-1)).toBe("urgent=1");
  for (let at = 0; at < 8; at++) api.faults.watch.push({ status: 404 });
  for (let at = 0; at < 40; at++) api.faults.list.push({ status: 404 });
  for (const watch of api.watches) watch.drop();
  await settle(2 * minute);
  expect(recorder.lists.at(-1)).toBe("");
  expect(logged("info").filter(({ message }) => message === "the cluster has no inference objectives")).toHaveLength(1);
  api.faults.list.length = 0;
  api.faults.watch.length = 0;
  await settle(2 * minute);
  expect(recorder.lists.at(-1)).toBe("urgent=1");
  expect(messages().filter((text) => text.includes(" list: "))).toEqual([]);
});

test("of both groups llm-d's counts, and the earlier one where that is not installed", async () => {
  const { start, api, recorder } = createRig({ kinds: [objectives] });
  api.put(oldObjectives, objective("old", 1));
  api.put(oldRewrites, rewrite("kept", [{ targets: [{ modelRewrite: "m" }] }]));
  await start();
  expect(recorder.lists.at(-1)).toBe("kept:*>m");
});

test("an API server that fails keeps the last state, and is reported once", async () => {
  const { start, api, recorder, messages, settle } = createRig();
  api.put(objectives, objective("urgent", 1));
  await start();
  for (let at = 0; at < 6; at++) api.faults.watch.push({ status: 500 });
  api.faults.list.push({ status: 500 }, "drop", { status: 403 });
  for (const watch of api.watches) watch.drop();
  await settle(minute);
  expect(recorder.lists.at(-1)).toBe("urgent=1");
  expect(messages().length).toBeGreaterThan(0);
  await settle(5 * minute);
  api.put(objectives, objective("urgent", 2));
  await settle(minute);
  expect(recorder.lists.at(-1)).toBe("urgent=2");
  expect(recorder.recoveries).toBeGreaterThan(0);
});

test("a start does not wait where the service account may not read, which is reported until it may", async () => {
  const { start, api, messages, time, recorder, settle } = createRig({ modelRewrites: false });
  for (let at = 0; at < 20; at++) api.faults.list.push({ status: 403 });
  api.put(objectives, objective("urgent", 1));
  await start();
  expect(time.clock.nowMs()).toBeLessThan(1_000);
  expect(messages()).toEqual([
    "requests of inference pool ai/chat: inference objectives, list: status 403, the service account lacks the permission: as requested",
  ]);
  api.faults.list.length = 0;
  await settle(minute);
  expect(recorder.lists.at(-1)).toBe("urgent=1");
  expect(recorder.recoveries).toBe(1);
});

test("a start waits for an API server that fails, for a while", async () => {
  const { start, api, time, recorder } = createRig({ modelRewrites: false });
  api.faults.list.push({ status: 500 }, { status: 500 }, { status: 500 });
  api.put(objectives, objective("urgent", 1));
  await start();
  expect(recorder.lists.at(-1)).toBe("urgent=1");
  expect(time.clock.nowMs()).toBeLessThan(5_000);
});

test.each([
  ["objectives", { modelRewrites: false }, rewrites],
  ["rewrites", { objectives: false }, objectives],
])("a source of %s only does not ask for the others", async (_, options, other) => {
  const { start, api, count } = createRig(options);
  await start();
  expect(count("list", other)).toBe(0);
  expect(api.watches.size).toBe(1);
});

test("after a stop nothing is followed, also where a kind is absent", async () => {
  const { start, api, source, settle, time, recorder } = createRig({ kinds: [objectives] });
  await start();
  await source.stop();
  const lists = recorder.lists.length;
  api.put(objectives, objective("urgent", 1));
  await settle(10 * minute);
  expect(recorder.lists).toHaveLength(lists);
  expect([time.pendingCount, api.watches.size]).toEqual([0, 0]);
});
