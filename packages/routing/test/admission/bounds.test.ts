import { expect, test } from "vitest";
import { createRig, testClass } from "./rig.ts";

const classes = [testClass("high"), testClass("default"), testClass("low"), testClass("least")];

test("a queue holds so many requests and not one more", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueued: 3 } });
  rig.fill();
  const sent = [1, 2, 3, 4].map((name) => rig.send(`request-${name}`));
  expect(sent.map(({ refusal }) => refusal)).toEqual([undefined, undefined, undefined, "queue_full 1"]);
  expect(sent[3]!.ticket).toBeUndefined();
  expect(rig.admission.queued).toBe(3);
  expect(rig.meter.value("espalier_admission_shed_total", "default", "queue_full")).toBe(1);
});

test("and so many bytes of bodies", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueuedBytes: 1_000 } });
  rig.fill();
  const sizes = [600, 400, 1];
  const sent = sizes.map((sizeBytes) => rig.send("request", { sizeBytes }));
  expect(sent.map(({ refusal }) => refusal)).toEqual([undefined, undefined, "queue_full 1"]);
  sent[0]!.ticket?.leave();
  expect(rig.send("fits", { sizeBytes: 600 }).refusal).toBeUndefined();
});

test("nothing is preempted for a body that would not fit an empty queue", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueuedBytes: 1_000 } });
  rig.fill();
  const low = rig.send("low", { className: "least" });
  expect(rig.send("huge", { className: "high", sizeBytes: 1_001 }).refusal).toBe("queue_full 1");
  expect(low.refusal).toBeUndefined();
});

test("a queue of none refuses what cannot go at once", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueued: 0 } });
  expect(rig.send("goes").refusal).toBeUndefined();
  rig.fill();
  expect(rig.send("stays").refusal).toBe("queue_full 1");
});

test("a higher class takes the place of the youngest of the lowest", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueued: 4 } });
  rig.fill();
  const usual = rig.send("usual");
  const low = rig.send("low", { className: "low" });
  const least = ["a", "b"].map((name) => rig.send(name, { className: "least" }));
  const high = ["c", "d", "e"].map((name) => rig.send(name, { className: "high" }));
  expect(least.map(({ refusal }) => refusal)).toEqual(["queue_full 1", "queue_full 1"]);
  expect(low.refusal).toBe("queue_full 1");
  expect([usual, ...high].map(({ refusal }) => refusal)).toEqual(Array(4).fill(undefined));
  expect(rig.meter.value("espalier_admission_shed_total", "least", "preempted")).toBe(2);
  expect(rig.send("equal").refusal).toBe("queue_full 1");
  expect(rig.admission.queued).toBe(4);
});

test("the youngest goes first: the one that waited longest keeps its place", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueued: 3 } });
  rig.fill();
  const low = ["a", "b", "c"].map((name) => rig.send(name, { className: "low", tenant: name }));
  rig.send("usual");
  expect(low.map(({ refusal }) => refusal === undefined)).toEqual([true, true, false]);
});

test("as many are preempted as their bytes ask for", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueuedBytes: 1_000 } });
  rig.fill();
  const low = [1, 2, 3, 4, 5].map(() => rig.send("low", { className: "low", sizeBytes: 200 }));
  expect(rig.send("usual", { sizeBytes: 500 }).refusal).toBeUndefined();
  expect(low.map(({ refusal }) => refusal === undefined)).toEqual([true, true, false, false, false]);
});

// Requests of lower classes were refused one by one, and only then was it found that they had too few bytes: all of them
// got 429, and the newcomer as well.
test("none is preempted for a request that would not fit without all of them", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueuedBytes: 1_000 } });
  rig.fill();
  const equal = rig.send("equal", { className: "high", sizeBytes: 700 });
  const low = [1, 2, 3].map(() => rig.send("low", { className: "low", sizeBytes: 100 }));
  expect(rig.send("newcomer", { className: "high", sizeBytes: 400 }).refusal).toBe("queue_full 1");
  expect([equal, ...low].map(({ refusal }) => refusal)).toEqual(Array(4).fill(undefined));
  expect(rig.admission.queued).toBe(4);
  expect(rig.send("smaller", { className: "high", sizeBytes: 300 }).refusal).toBeUndefined();
  expect(rig.admission.queued).toBe(2);
});

test("none of a busier tenant is preempted for a request that all it has too many would not make fit", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueuedBytes: 1_000 } });
  rig.fill();
  const busy = [1, 2, 3, 4, 5].map(() => rig.send("busy", { tenant: "busy", sizeBytes: 200 }));
  expect(rig.send("other", { tenant: "other", sizeBytes: 900 }).refusal).toBe("queue_full 1");
  expect(busy.map(({ refusal }) => refusal)).toEqual(Array(5).fill(undefined));
  expect(rig.send("other", { tenant: "other", sizeBytes: 800 }).refusal).toBeUndefined();
  expect(busy.map(({ refusal }) => refusal === undefined)).toEqual([true, false, false, false, false]);
});

test("requests that leave when another is preempted are not preempted as well", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueuedBytes: 1_000 } });
  rig.fill();
  const low = [1, 2].map((name) => rig.send(`low-${name}`, { className: "low", sizeBytes: 500 }));
  rig.onRefused = () => low[0]!.ticket?.leave();
  expect(rig.send("high", { className: "high", sizeBytes: 900 }).refusal).toBeUndefined();
  expect(rig.admission.queued).toBe(1);
});

test("a tenant that fills a class makes room for another one of it, until both have as many", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueued: 6 } });
  rig.fill();
  const greedy = [1, 2, 3, 4, 5, 6].map(() => rig.send("greedy", { tenant: "greedy" }));
  const others = [1, 2, 3, 4].map(() => rig.send("other", { tenant: "other" }));
  expect(greedy.map(({ refusal }) => refusal === undefined)).toEqual([true, true, true, false, false, false]);
  expect(others.map(({ refusal }) => refusal === undefined)).toEqual([true, true, true, false]);
  expect(rig.admission.queued).toBe(6);
});

test("what is running is never preempted", () => {
  const rig = createRig({ targets: 1, settings: { classes, maxQueued: 1 } });
  const running = rig.send("running", { className: "least" });
  rig.fill();
  rig.send("high", { className: "high" });
  expect(rig.send("higher", { className: "high" }).refusal).toBe("queue_full 1");
  expect(running).toMatchObject({ target: 0, refusal: undefined });
});

test("a request that would wait behind too many for its taste is refused; one that need not wait goes", () => {
  const rig = createRig({ targets: 1, settings: { classes } });
  expect(rig.send("goes", { maxAhead: 0 }).target).toBe(0);
  rig.fill();
  rig.send("first");
  expect(rig.send("second", { maxAhead: 2 }).refusal).toBeUndefined();
  expect(rig.send("third", { maxAhead: 2 }).refusal).toBe("queue_full 1");
  expect(rig.meter.value("espalier_admission_shed_total", "default", "overflow")).toBe(1);
  expect(rig.admission.queued).toBe(2);
});
