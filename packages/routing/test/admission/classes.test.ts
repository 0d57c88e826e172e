import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { defaultAdmissionSettings, maxClasses } from "../../src/admission/index.ts";
import { createRig, full, type Rig, testClass } from "./rig.ts";

/** Serves one request after the other at the only engine until nothing waits, or so often. */
function drain(rig: Rig, times = Number.POSITIVE_INFINITY): void {
  for (let count = 0; count < times && rig.admission.queued > 0; count++) rig.done(0);
}

test("the higher class goes first, whenever it came", () => {
  const rig = createRig({
    targets: 1,
    settings: { classes: ["high", "default", "low"].map((name) => testClass(name)) },
  });
  rig.fill();
  for (const [name, className] of [
    ["a", "low"],
    ["b", "default"],
    ["c", "high"],
    ["d", undefined],
    ["e", "high"],
    ["f", "no-such-class"],
  ] as const) {
    rig.send(name, { className });
  }
  drain(rig);
  expect(rig.went).toEqual(["c", "e", "b", "d", "f", "a"]);
});

test("a request goes past lower ones that wait, for they have no claim to what it takes", () => {
  const classes = [testClass("default", { maxPendingTokens: 2_000 }), testClass("low")];
  const rig = createRig({ targets: 1, settings: { classes } });
  rig.targets[0]!.load.pendingPrefillTokens = 1;
  rig.send("low", { className: "low" });
  expect(rig.send("usual").target).toBe(0);
  expect(rig.admission.queued).toBe(1);
});

test("a class gets its guaranteed share beside a higher one that never ends", () => {
  const classes = [testClass("default"), testClass("low", { share: 0.2 })];
  const rig = createRig({ targets: 1, settings: { classes, maxQueued: 10_000 } });
  rig.fill();
  for (let count = 0; count < 500; count++) {
    rig.send("usual");
    rig.send("low", { className: "low" });
  }
  drain(rig, 500);
  const low = rig.went.filter((name) => name === "low").length;
  expect(low / rig.went.length).toBeGreaterThan(0.19);
  expect(low / rig.went.length).toBeLessThan(0.21);
});

test("without a share a lower class waits until the higher one is done", () => {
  const rig = createRig({ targets: 1, settings: { classes: [testClass("default"), testClass("low")] } });
  rig.fill();
  for (let count = 0; count < 50; count++) rig.send("low", { className: "low" });
  for (let count = 0; count < 50; count++) rig.send("usual");
  drain(rig);
  expect(rig.went.slice(0, 50)).toEqual(Array(50).fill("usual"));
});

test.each([1, 2, 3])("by deficit, classes that are backlogged get tokens by their shares (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const classes = [
    testClass("default", { share: 0.6 }),
    testClass("low", { share: 0.3 }),
    testClass("least", { share: 0.1 }),
  ];
  const rig = createRig({ targets: 1, settings: { classes, classScheduling: "deficit", maxQueued: 10_000 } });
  rig.fill();
  const served = new Map<string, number>();
  const send = (className: string): void => {
    const promptTokens = 100 + random.integer(2_000);
    rig.send(className, { className, promptTokens });
  };
  for (let count = 0; count < 400; count++) for (const { name } of classes) send(name);
  for (let count = 0; count < 400; count++) {
    const before = rig.went.length;
    const tokens = rig.admission.usage().reduce((sum, one) => sum + one.tokens, 0);
    rig.done(0);
    const name = rig.went[before]!;
    const now = rig.admission.usage().reduce((sum, one) => sum + one.tokens, 0);
    served.set(name, (served.get(name) ?? 0) + now - tokens);
  }
  const total = [...served.values()].reduce((sum, tokens) => sum + tokens, 0);
  for (const { name, share } of classes) expect(served.get(name)! / total).toBeCloseTo(share, 1);
  expect(Math.abs(served.get("low")! / total - 0.3)).toBeLessThan(0.015);
});

test("by deficit, a class without a share gets what no other one wants", () => {
  const classes = [testClass("default", { share: 1 }), testClass("low")];
  const rig = createRig({ targets: 1, settings: { classes, classScheduling: "deficit" } });
  rig.fill();
  for (let count = 0; count < 20; count++) rig.send("low", { className: "low" });
  for (let count = 0; count < 20; count++) rig.send("usual");
  drain(rig, 21);
  expect(rig.went.filter((name) => name === "usual")).toHaveLength(20);
});

test("by deficit, a class that was away does not catch up on what it did not ask for", () => {
  const classes = [testClass("default", { share: 0.5 }), testClass("low", { share: 0.5 })];
  const rig = createRig({ targets: 1, settings: { classes, classScheduling: "deficit" } });
  rig.fill();
  for (let count = 0; count < 60; count++) rig.send("usual");
  drain(rig, 40);
  for (let count = 0; count < 20; count++) rig.send("low", { className: "low" });
  drain(rig, 20);
  expect(rig.went.slice(40).filter((name) => name === "low")).toHaveLength(10);
});

test("earliest deadline first; without one a request counts as due in half a minute", () => {
  const rig = createRig({ targets: 1, settings: { classes: [testClass("default", { order: "edf" })] } });
  rig.fill();
  rig.send("none");
  rig.send("late", { deadlineMs: 40_000 });
  rig.send("soon", { deadlineMs: 5_000 });
  rig.time.advance(10);
  rig.send("sooner", { deadlineMs: 4_000 });
  rig.send("none too");
  drain(rig);
  expect(rig.went).toEqual(["sooner", "soon", "none", "late", "none too"]);
});

test("the shortest prompt first, but a long one that has waited passes short ones that came late", () => {
  const rig = createRig({ targets: 1, settings: { classes: [testClass("default", { order: "shortest_prefill" })] } });
  rig.fill();
  rig.send("long", { promptTokens: 10_000 });
  rig.send("short", { promptTokens: 100 });
  rig.send("shorter", { promptTokens: 50 });
  rig.time.advance(60_000);
  rig.send("late", { promptTokens: 10 });
  drain(rig);
  expect(rig.went).toEqual(["shorter", "short", "long", "late"]);
});

test("an agent whose context is cached passes a new one, however long its prompt", () => {
  const rig = createRig({ targets: 1 });
  rig.fill();
  rig.send("new", { promptTokens: 20_000, cachedTokens: 0 });
  rig.send("in progress", { promptTokens: 100_000, cachedTokens: 99_000 });
  rig.send("of unknown caches", { promptTokens: 10_000 });
  rig.time.advance(80_000);
  rig.send("later, in progress", { promptTokens: 100_000, cachedTokens: 99_000 });
  rig.time.advance(25_000);
  rig.send("too late to pass", { promptTokens: 1_000, cachedTokens: 900 });
  drain(rig);
  expect(rig.went).toEqual(["in progress", "of unknown caches", "later, in progress", "new", "too late to pass"]);
});

test("settings that make no sense are refused", () => {
  const many = (count: number) => Array.from({ length: count }, (_, at) => testClass(at === 0 ? "default" : `c${at}`));
  expect(() => createRig({ settings: { classes: many(maxClasses) } })).not.toThrow();
  expect(() => createRig({ settings: { classes: many(maxClasses + 1) } })).toThrow(RangeError);
  expect(() => createRig({ settings: { classes: [] } })).toThrow(RangeError);
  expect(() => createRig({ settings: { defaultClass: "none" } })).toThrow(/unknown class none/);
  expect(() => createRig({ settings: { classes: [testClass("default"), testClass("default")] } })).toThrow(
    /share a name/,
  );
  expect(() => createRig({ settings: { classes: [testClass("default", { share: 1.01 })] } })).toThrow(/shares/);
  expect(() => createRig({ settings: { classes: [testClass("default", { share: -0.1 })] } })).toThrow(/shares/);
  expect(() => createRig({ settings: { classes: [testClass("default", { maxPendingTokens: 0 })] } })).toThrow(/token/);
  expect(() => createRig({ settings: { maxQueued: -1 } })).toThrow(/queue limits must be 0 or more/);
});

test("the default classes: nothing lower goes before people, and work without people has the pool to itself", () => {
  expect(defaultAdmissionSettings.classes.map(({ name, yields }) => [name, yields])).toEqual([
    ["interactive", false],
    ["default", false],
    ["batch", true],
    ["background", true],
  ]);
  const rig = createRig({ targets: 4 });
  expect(rig.send("job", { className: "batch" }).open).toEqual([0, 1, 2, 3]);
  expect(full).toBeGreaterThan(Math.max(...defaultAdmissionSettings.classes.map((one) => one.maxPendingTokens)));
});
