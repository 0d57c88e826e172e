import { expect, test } from "vitest";
import { noPeerLoad } from "../../src/admission/index.ts";
import { createRig, type Rig, testClass } from "./rig.ts";

const rejecting = [testClass("default"), testClass("low")];
const demoting = [testClass("default", { onMiss: "demote" }), testClass("low", { onMiss: "demote" })];

/** Teaches the queue that a request of 1,000 tokens goes every 100 ms, and leaves `left` of them waiting. */
function busyRig(settings: Parameters<typeof createRig>[0], left = 10): Rig {
  const rig = createRig({ targets: 1, ...settings });
  rig.fill();
  for (let count = 0; count < 20 + left; count++) rig.send(`before-${count}`);
  for (let count = 0; count < 20; count++) {
    rig.time.advance(100);
    rig.done(0);
  }
  return rig;
}

test("a deadline that will be missed is answered at once, with the time after which to come again", () => {
  const rig = busyRig({ settings: { classes: rejecting } });
  expect(rig.send("hopeless", { deadlineMs: 500 }).refusal).toMatch(/^deadline_missed 1(\.\d+)?$/);
  expect(rig.send("fine", { deadlineMs: 5_000 }).refusal).toBeUndefined();
  expect(rig.admission.queued).toBe(11);
  expect(rig.meter.value("espalier_admission_shed_total", "default", "deadline_missed")).toBe(1);
});

test("what waits in lower classes takes no time of it", () => {
  const rig = busyRig({ settings: { classes: rejecting } }, 0);
  for (let count = 0; count < 50; count++) rig.send("low", { className: "low" });
  expect(rig.send("fine", { deadlineMs: 500 }).refusal).toBeUndefined();
  expect(rig.send("hopeless", { className: "low", deadlineMs: 500 }).refusal).toMatch(/^deadline_missed 5/);
});

test("while nobody knows how fast requests go, none is turned away for it", () => {
  const rig = createRig({ targets: 1, settings: { classes: rejecting } });
  rig.fill();
  for (let count = 0; count < 20; count++) rig.send("before");
  expect(rig.send("hopeful", { deadlineMs: 1 }).refusal).toBeUndefined();
});

test("how fast requests went is forgotten after a minute without a queue", () => {
  const rig = busyRig({ settings: { classes: rejecting } }, 0);
  rig.time.advance(60_001);
  for (let count = 0; count < 20; count++) rig.send("again");
  expect(rig.send("hopeful", { deadlineMs: 10 }).refusal).toBeUndefined();
});

test("a request that waited for two fifths of its time is given up", () => {
  const rig = createRig({ targets: 1, settings: { classes: rejecting } });
  rig.fill();
  const sent = rig.send("late", { deadlineMs: 250 });
  const other = rig.send("later", { deadlineMs: 2_500 });
  rig.time.advance(99);
  expect(sent.refusal).toBeUndefined();
  rig.time.advance(21);
  expect(sent.refusal).toBe("deadline_missed 1");
  expect([other.refusal, rig.admission.queued]).toEqual([undefined, 1]);
  rig.unload();
  expect(rig.went).toEqual(["later"]);
});

test("a class's own target counts where a request says nothing, and what a request says goes before it", () => {
  const rig = createRig({ targets: 1, settings: { classes: [testClass("default", { targetMs: 250 })] } });
  rig.fill();
  const usual = rig.send("usual");
  const late = rig.send("late", { deadlineMs: 10_000 });
  rig.time.advance(200);
  expect([usual.refusal, late.refusal]).toEqual(["deadline_missed 1", undefined]);
});

test("a class that demotes keeps the request, a class lower and without a deadline", () => {
  const rig = createRig({ targets: 1, settings: { classes: demoting } });
  rig.fill();
  const late = rig.send("late", { deadlineMs: 100 });
  rig.send("low", { className: "low" });
  rig.time.advance(150);
  rig.send("new");
  expect(late.ticket).toMatchObject({ isWaiting: true, className: "low" });
  expect(rig.meter.value("espalier_admission_queued_requests", "default")).toBe(1);
  expect(rig.meter.value("espalier_admission_queued_requests", "low")).toBe(2);
  for (let count = 0; count < 3; count++) rig.done(0);
  expect(rig.went).toEqual(["new", "late", "low"]);
  expect(rig.meter.value("espalier_admission_shed_total", "default", "demoted")).toBe(1);
});

test("the lowest class demotes nobody further: its deadlines do not count", () => {
  const rig = createRig({ targets: 1, settings: { classes: demoting } });
  rig.fill();
  const low = rig.send("low", { className: "low", deadlineMs: 100 });
  rig.time.advance(60_000);
  expect(low.ticket).toMatchObject({ isWaiting: true, className: "low" });
  low.ticket?.leave();
  expect(rig.admission.queued).toBe(0);
  expect(rig.time.pendingCount).toBe(0);
});

test("a miss that is foreseen demotes before the request has waited", () => {
  const rig = busyRig({ settings: { classes: demoting } });
  expect(rig.send("hopeless", { deadlineMs: 500 }).ticket).toMatchObject({ isWaiting: true, className: "low" });
});

test("Retry-After is a minute at most", () => {
  const rig = busyRig({ settings: { classes: rejecting } }, 900);
  expect(rig.send("hopeless", { deadlineMs: 500 }).refusal).toBe("deadline_missed 60");
});

test("with a prompt that caches mostly hold, a request is expected to go sooner", () => {
  const rig = createRig({ targets: 1, settings: { classes: rejecting } });
  const cached = {
    targets: () => rig.targets,
    admitted: (_: unknown, ticket: { dispatched(tokens: number): void }) => ticket.dispatched(10),
    refused: () => {},
  };
  const free = { tenant: "", expectedOutputTokens: 0, sizeBytes: 0, deadlineMs: undefined, onlyEngine: undefined };
  for (let count = 0; count < 500; count++) {
    rig.admission.enter({ className: undefined, promptTokens: 1_000, ...free }, cached);
  }
  rig.fill();
  for (let count = 0; count < 30; count++) rig.send("before", { promptTokens: 1_000 });
  for (let count = 0; count < 20; count++) {
    rig.time.advance(100);
    rig.done(0);
  }
  // Ten requests of expected size wait, each a tenth of a second: whatever their prompts are in all.
  expect(rig.send("fine", { deadlineMs: 12_500 }).refusal).toBeUndefined();
  expect(rig.admission.usage()[0]!.tokens).toBeLessThan(500 * 10 + 20 * 1_000 + 1);
});

const roomy = [testClass("default", { maxPendingTokens: 1_000_000, targetMs: 1_000 })];

test("an engine whose prompts need a fifth of the time gets no more, by what all routers have sent", () => {
  const pendingWorkMs = Float64Array.of(100, 199);
  const rig = createRig({ settings: { classes: roomy }, others: { ...noPeerLoad, pendingWorkMs } });
  rig.targets[0]!.load.pendingWorkMs = 100;
  rig.targets[1]!.load.pendingWorkMs = 1;
  const sent = rig.send("waits");
  expect(sent).toMatchObject({ target: -1, refusal: undefined, ticket: { isWaiting: true } });
  // What a request says goes before its class's target.
  expect(rig.send("has time", { deadlineMs: 1_005 }).target).toBe(-1);
  rig.targets[1]!.load.pendingWorkMs = 0;
  rig.admission.capacityFreed();
  expect(rig.went).toEqual(["waits", "has time"]);
  expect(sent.ticket?.waitedMs).toBe(0);
});

test("without a deadline it does not matter how long an engine needs", () => {
  const rig = createRig({ settings: { classes: [{ ...roomy[0]!, targetMs: undefined }] } });
  for (const { load } of rig.targets) load.pendingWorkMs = 1e9;
  expect(rig.send("goes").target).toBe(0);
  expect(rig.send("waits", { deadlineMs: 60_000 }).target).toBe(-1);
});

test("a deadline shorter than any prompt needs still finds an engine that has nothing to do", () => {
  const rig = createRig({ targets: 1, settings: { classes: roomy } });
  expect(rig.send("at once", { deadlineMs: 1 }).target).toBe(0);
});

test("who comes after one that waits for its deadline's sake does not fill engines meanwhile", () => {
  const classes = [roomy[0]!, { ...roomy[0]!, name: "low", targetMs: undefined }];
  const rig = createRig({ targets: 1, settings: { classes } });
  const { load } = rig.targets[0]!;
  load.pendingWorkMs = 200;
  rig.send("high");
  const low = rig.send("low", { className: "low" });
  rig.time.advance(100);
  expect([rig.went, low.ticket?.isWaiting]).toEqual([[], true]);
  // The high one is given up: nothing holds the other any more.
  rig.time.advance(320);
  expect(rig.went).toEqual(["low"]);
});

test("one whose only engine is busy does not bound the others", () => {
  const classes = [roomy[0]!, { ...roomy[0]!, name: "low", targetMs: undefined }];
  const rig = createRig({ settings: { classes } });
  for (const { load } of rig.targets) load.pendingWorkMs = 200;
  rig.send("bound", { onlyEngine: "engine-1" });
  rig.send("low", { className: "low" });
  rig.time.advance(20);
  expect(rig.went).toEqual(["low"]);
});

test("a request that lost its deadline finds capacity as any other", () => {
  const classes = [
    { ...roomy[0]!, onMiss: "demote" as const },
    { ...roomy[0]!, name: "low", targetMs: undefined },
  ];
  const rig = createRig({ targets: 1, settings: { classes } });
  rig.targets[0]!.load.pendingWorkMs = 5_000;
  const late = rig.send("late");
  rig.time.advance(420);
  expect([rig.went, late.ticket?.className]).toEqual([["late"], "low"]);
});
