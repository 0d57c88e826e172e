import { expect, test } from "vitest";
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
  expect(rig.send("fine", { deadlineMs: 2_000 }).refusal).toBeUndefined();
  expect(rig.admission.queued).toBe(11);
  expect(rig.meter.value("espalier_admission_shed_total", "default", "deadline_missed")).toBe(1);
});

test("what waits in lower classes takes no time of it", () => {
  const rig = busyRig({ settings: { classes: rejecting } }, 0);
  for (let count = 0; count < 50; count++) rig.send("low", { className: "low" });
  expect(rig.send("fine", { deadlineMs: 200 }).refusal).toBeUndefined();
  expect(rig.send("hopeless", { className: "low", deadlineMs: 200 }).refusal).toMatch(/^deadline_missed 5/);
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

test("a deadline that passes while a request waits ends the waiting", () => {
  const rig = createRig({ targets: 1, settings: { classes: rejecting } });
  rig.fill();
  const sent = rig.send("late", { deadlineMs: 100 });
  const other = rig.send("later", { deadlineMs: 1_000 });
  rig.time.advance(99);
  expect(sent.refusal).toBeUndefined();
  rig.time.advance(21);
  expect(sent.refusal).toBe("deadline_missed 1");
  expect([other.refusal, rig.admission.queued]).toEqual([undefined, 1]);
  rig.ease();
  expect(rig.went).toEqual(["later"]);
});

test("a class's own target counts where a request says nothing, and what a request says goes before it", () => {
  const rig = createRig({ targets: 1, settings: { classes: [testClass("default", { targetMs: 100 })] } });
  rig.fill();
  const usual = rig.send("usual");
  const patient = rig.send("patient", { deadlineMs: 10_000 });
  rig.time.advance(200);
  expect([usual.refusal, patient.refusal]).toEqual(["deadline_missed 1", undefined]);
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
  expect(rig.send("fine", { deadlineMs: 5_000 }).refusal).toBeUndefined();
  expect(rig.admission.usage()[0]!.tokens).toBeLessThan(500 * 10 + 20 * 1_000 + 1);
});
