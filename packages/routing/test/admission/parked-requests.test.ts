import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { maxRechecked, recheckEveryMs } from "../../src/admission/parked-requests.ts";
import { createRig, testClass } from "./rig.ts";

const maxColdWaitMs = 10_000;
const waitsForMemory = [testClass("default", { maxColdWaitMs, maxPendingTokens: 1_000_000 }), testClass("other")];

/** Memory that requests fit in or do not. */
function memory() {
  const state = { fits: false, asked: 0 };
  const fitsInMemory = (): boolean => {
    state.asked += 1;
    return state.fits;
  };
  return { state, fitsInMemory };
}

test("a request of a class with a max cold wait is parked until it fits in memory, and delays nobody meanwhile", () => {
  const rig = createRig({ settings: { classes: waitsForMemory } });
  const { state, fitsInMemory } = memory();
  rig.time.advance(5_000);
  const { ticket } = rig.send("cold", {}, fitsInMemory);
  expect([ticket?.isWaiting, rig.admission.parked, rig.admission.queued]).toEqual([true, 1, 0]);
  rig.send("warm", {}, () => true);
  expect(rig.went).toEqual(["warm"]);
  rig.time.advance(3 * recheckEveryMs);
  expect([rig.went, state.asked]).toEqual([["warm"], 4]);
  state.fits = true;
  rig.time.advance(recheckEveryMs);
  expect(rig.went).toEqual(["warm", "cold"]);
  expect(ticket).toMatchObject({ isWaiting: false, waitedMs: 4 * recheckEveryMs });
  expect([rig.admission.parked, rig.time.pendingCount]).toEqual([0, 0]);
});

test("a request that has waited as long as its class allows is admitted, whatever it evicts", () => {
  const rig = createRig({ settings: { classes: waitsForMemory } });
  rig.send("cold", {}, () => false);
  rig.time.advance(maxColdWaitMs - 1);
  expect(rig.went).toEqual([]);
  rig.time.advance(1 + recheckEveryMs);
  expect(rig.went).toEqual(["cold"]);
});

test("classes without a max cold wait, requests with a deadline and listeners that do not say are not asked", () => {
  const late = testClass("late", { maxColdWaitMs, targetMs: 1_000 });
  const rig = createRig({ settings: { classes: [...waitsForMemory, late] } });
  const { state, fitsInMemory } = memory();
  rig.send("at once", { className: "other" }, fitsInMemory);
  rig.done(0);
  rig.done(1);
  rig.send("due", { deadlineMs: 60_000 }, fitsInMemory);
  rig.done(0);
  rig.done(1);
  rig.send("due by its class", { className: "late" }, fitsInMemory);
  rig.send("unknown");
  expect(rig.went).toEqual(["at once", "due", "due by its class", "unknown"]);
  expect(state.asked).toBe(0);
});

test("a client that goes leaves at once, and nothing goes on for it", () => {
  const rig = createRig({ settings: { classes: waitsForMemory } });
  const { ticket } = rig.send("cold", {}, () => false);
  ticket?.leave();
  expect([ticket?.isWaiting, rig.admission.parked, rig.time.pendingCount]).toEqual([false, 0, 0]);
  rig.time.advance(2 * maxColdWaitMs);
  expect(rig.went).toEqual([]);
  expect(rig.meter.value("espalier_admission_parked_requests", "default")).toBe(0);
  expect(rig.meter.value("espalier_admission_shed_total", "default", "client_gone")).toBe(1);
});

test("parked requests are admitted in the order in which they came, each when it fits", () => {
  const rig = createRig({ settings: { classes: waitsForMemory } });
  const harmless = new Set<string>();
  for (const name of ["a", "b", "c"]) {
    rig.send(name, {}, () => harmless.has(name));
    rig.time.advance(1);
  }
  harmless.add("b");
  rig.time.advance(recheckEveryMs);
  harmless.add("a").add("c");
  rig.time.advance(recheckEveryMs);
  expect(rig.went).toEqual(["b", "a", "c"]);
});

test("with engines past their saturation limit no parked request is queued instead, but for those whose max cold wait is over", () => {
  const rig = createRig({ settings: { classes: waitsForMemory } });
  const { state, fitsInMemory } = memory();
  rig.send("cold", {}, fitsInMemory);
  rig.fill();
  rig.send("waits", {}, () => true);
  state.fits = true;
  rig.time.advance(recheckEveryMs);
  expect([rig.admission.parked, rig.admission.queued]).toEqual([1, 1]);
  rig.time.advance(maxColdWaitMs);
  expect([rig.admission.parked, rig.admission.queued]).toEqual([0, 2]);
  rig.unload();
  // In the queue it has the place of its arrival.
  expect(rig.went).toEqual(["cold", "waits"]);
});

test("as many are parked as may be queued; beyond that a request is admitted, and not refused", () => {
  const rig = createRig({ settings: { classes: waitsForMemory, maxQueued: 3 } });
  for (let count = 0; count < 4; count++) rig.send(`cold-${count}`, {}, () => false);
  expect([rig.admission.parked, rig.went]).toEqual([3, ["cold-3"]]);
});

test("bodies of parked requests are bounded likewise", () => {
  const rig = createRig({ settings: { classes: waitsForMemory, maxQueuedBytes: 250 } });
  const sent = ["a", "b", "c"].map((name) => rig.send(name, { sizeBytes: 100 }, () => false));
  expect([rig.admission.parked, rig.went]).toEqual([2, ["c"]]);
  sent[0]!.ticket?.leave();
  rig.send("d", { sizeBytes: 100 }, () => false);
  expect([rig.admission.parked, rig.went]).toEqual([2, ["c"]]);
});

test("a bounded number is asked about at a time", () => {
  const rig = createRig({ settings: { classes: waitsForMemory } });
  const { state, fitsInMemory } = memory();
  for (let count = 0; count <= maxRechecked; count++) rig.send("cold", {}, fitsInMemory);
  state.asked = 0;
  rig.time.advance(recheckEveryMs);
  expect(state.asked).toBe(maxRechecked);
});

test("metrics count parked requests by class, apart from queued ones", () => {
  const rig = createRig({ settings: { classes: waitsForMemory } });
  const { state, fitsInMemory } = memory();
  rig.send("a", {}, fitsInMemory);
  rig.send("b", {}, fitsInMemory);
  expect(rig.meter.value("espalier_admission_parked_requests", "default")).toBe(2);
  expect(rig.meter.value("espalier_admission_queued_requests", "default")).toBe(0);
  state.fits = true;
  rig.time.advance(recheckEveryMs);
  expect(rig.meter.value("espalier_admission_parked_requests", "default")).toBe(0);
});

test.each([1, 2, 3])("whatever comes, everybody goes or leaves, none twice (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const rig = createRig({ settings: { classes: waitsForMemory, maxQueued: 8 } });
  const gone = new Set<string>();
  for (let count = 0; count < 200; count++) {
    const name = `r${count}`;
    const { ticket } = rig.send(name, {}, () => random.float() < 0.3);
    if (random.float() < 0.2 && ticket?.isWaiting) {
      ticket.leave();
      gone.add(name);
    }
    rig.time.advance(random.integer(400));
    for (const target of [0, 1]) rig.done(target);
  }
  rig.time.advance(2 * maxColdWaitMs);
  expect(new Set(rig.went).size).toBe(rig.went.length);
  expect(rig.went.length + gone.size).toBe(200);
  expect(rig.went.some((name) => gone.has(name))).toBe(false);
  expect([rig.admission.parked, rig.admission.queued, rig.time.pendingCount]).toEqual([0, 0, 0]);
});

test("a max cold wait that is none is refused", () => {
  for (const wrong of [-1, 300_001, Number.NaN]) {
    expect(() => createRig({ settings: { classes: [testClass("default", { maxColdWaitMs: wrong })] } })).toThrow(
      RangeError,
    );
  }
});
