import { expect, test } from "vitest";
import { noPeerLoad } from "../../src/admission/index.ts";
import { createRig, full } from "./rig.ts";

test("while an engine is unsaturated a request goes before `enter` returns, and nothing waits for it", () => {
  const rig = createRig({ targets: 3 });
  const sent = rig.send("a");
  expect(sent).toMatchObject({ target: 0, open: [0, 1, 2], refusal: undefined });
  expect(sent.ticket).toMatchObject({ isWaiting: false, waitedMs: 0, className: "default" });
  expect(rig.admission.queued).toBe(0);
  expect(rig.time.pendingCount).toBe(0);
});

test("with every engine unsaturated the very array of the pool is given, so that nothing is allocated", () => {
  const rig = createRig();
  let given: unknown;
  const listener = {
    targets: () => rig.targets,
    admitted: (open: unknown) => {
      given = open;
    },
    refused: () => {},
  };
  const free = { tenant: "", expectedOutputTokens: 0, sizeBytes: 0, deadlineMs: undefined, onlyEngine: undefined };
  rig.admission.enter({ className: undefined, promptTokens: 1, ...free }, listener);
  expect(given).toBe(rig.targets);
});

test("the choice is among all unsaturated engines, and with none a request waits", () => {
  const rig = createRig({ targets: 3 });
  rig.targets[0]!.load.pendingPrefillTokens = full;
  rig.targets[1]!.load.pendingPrefillTokens = full;
  expect(rig.send("a").open).toEqual([0, 1, 2]);
  rig.targets[2]!.load.pendingPrefillTokens = full;
  expect(rig.send("b").target).toBe(-1);
  // One that cannot be used counts as saturated, whatever waits there.
  rig.targets[2]!.load.pendingPrefillTokens = 0;
  rig.targets[2]!.usable = false;
  expect(rig.send("c").target).toBe(-1);
});

test("of what waits the first goes when an engine has capacity, to whichever it is best for", () => {
  const rig = createRig({ targets: 2 });
  rig.fill();
  const { open } = rig.send("a");
  expect(open).toEqual([]);
  rig.done(1);
  expect(rig.went).toEqual(["a"]);
  expect(rig.admission.queued).toBe(0);
});

test("the saturation limit counts what other routers have sent, and the weight of an engine", () => {
  const pendingPrefillTokens = Float64Array.of(32_767, 1, 0);
  const rig = createRig({
    targets: 3,
    others: { ...noPeerLoad, inFlight: new Float64Array(3), pendingPrefillTokens },
  });
  rig.targets[0]!.load.pendingPrefillTokens = 1;
  rig.targets[1]!.engine.weight = 0.5;
  rig.targets[1]!.load.pendingPrefillTokens = 16_382;
  rig.targets[2]!.load.pendingPrefillTokens = full;
  rig.targets[1]!.load.pendingPrefillTokens = 16_383;
  expect(rig.send("a").target).toBe(-1);
  rig.targets[1]!.load.pendingPrefillTokens = 16_382;
  rig.admission.capacityFreed();
  expect(rig.went).toEqual(["a"]);
});

test("an engine of weight 0 counts as any other: it is asked only when nobody else is there", () => {
  const rig = createRig({ targets: 1 });
  rig.targets[0]!.engine.weight = 0;
  expect(rig.send("a").target).toBe(0);
});

test.each([
  ["a queue of its own", { waiting: 16, kvUse: 0.1 }, []],
  ["a short queue", { waiting: 15, kvUse: 0.1 }, [0]],
  ["no blocks left and a queue", { waiting: 1, kvUse: 0.95 }, []],
  ["no blocks left, but nobody who wants one", { waiting: 0, kvUse: 1 }, [0]],
  ["no blocks left, and no word of a queue", { waiting: Number.NaN, kvUse: 1 }, [0]],
  ["an old report", { waiting: 100, kvUse: 1, age: 2_001 }, [0]],
  ["requests that have ended since the report", { waiting: 20, kvUse: 0.1, inFlightAtScrape: 25 }, [0]],
  ["requests that have come since the report", { waiting: 16, kvUse: 0.1, inFlightAtScrape: 5 }, []],
])("an engine's own metrics: %s", (_, signals, open) => {
  const rig = createRig({ targets: 1 });
  rig.targets[0]!.load.inFlight = 20;
  Object.assign(rig.targets[0]!.signals, signals);
  expect(rig.send("a").open).toEqual(open);
});

test("engines that cannot be used, or only compute prompts, have no part in it", () => {
  const rig = createRig({ targets: 3 });
  rig.targets[0]!.usable = false;
  rig.targets[1]!.engine.role = "prefill";
  rig.targets[2]!.load.pendingPrefillTokens = full;
  expect(rig.send("a").target).toBe(-1);
  rig.done(2);
  expect(rig.went).toEqual(["a"]);
});

test("nobody waits for a pool without a usable engine: it is told at once", () => {
  const rig = createRig();
  for (const target of rig.targets) target.usable = false;
  expect(rig.send("a").open).toEqual([0, 1]);
  expect(rig.admission.queued).toBe(0);
});

test("those that wait are told when the last engine goes", () => {
  const rig = createRig();
  rig.fill();
  const sent = rig.send("a");
  for (const target of rig.targets) target.usable = false;
  rig.time.advance(20);
  expect([sent.target, rig.went]).toEqual([0, ["a"]]);
});

test("a request that one engine alone can serve waits for it, and for no other", () => {
  const rig = createRig();
  rig.targets[0]!.load.pendingPrefillTokens = full;
  const bound = rig.send("bound", { onlyEngine: "engine-0" });
  expect(bound.target).toBe(-1);
  expect(rig.send("other").target).toBe(1);
  rig.done(0);
  expect(bound.target).toBe(0);
});
