import { createSeededRandom } from "@espalier/common";
import { expect, test } from "vitest";
import { maxRechecked, recheckEveryMs } from "../src/parked-requests.ts";
import { createRig, testClass } from "./rig.ts";

const patienceMs = 10_000;
const patient = [testClass("default", { patienceMs, maxPendingTokens: 1_000_000 }), testClass("other")];

/** Memory that requests fit in or do not. */
function memory() {
  const state = { hasRoom: false, asked: 0 };
  const mayGo = (): boolean => {
    state.asked += 1;
    return state.hasRoom;
  };
  return { state, mayGo };
}

test("a request of a patient class waits until it does no harm, and holds nobody up meanwhile", () => {
  const rig = createRig({ settings: { classes: patient } });
  const { state, mayGo } = memory();
  rig.time.advance(5_000);
  const { ticket } = rig.send("cold", {}, mayGo);
  expect([ticket?.isWaiting, rig.admission.parked, rig.admission.queued]).toEqual([true, 1, 0]);
  rig.send("warm", {}, () => true);
  expect(rig.went).toEqual(["warm"]);
  rig.time.advance(3 * recheckEveryMs);
  expect([rig.went, state.asked]).toEqual([["warm"], 4]);
  state.hasRoom = true;
  rig.time.advance(recheckEveryMs);
  expect(rig.went).toEqual(["warm", "cold"]);
  expect(ticket).toMatchObject({ isWaiting: false, waitedMs: 4 * recheckEveryMs });
  expect([rig.admission.parked, rig.time.pendingCount]).toEqual([0, 0]);
});

test("whoever has waited as long as its class has patience goes, whatever it drives out", () => {
  const rig = createRig({ settings: { classes: patient } });
  rig.send("cold", {}, () => false);
  rig.time.advance(patienceMs - 1);
  expect(rig.went).toEqual([]);
  rig.time.advance(1 + recheckEveryMs);
  expect(rig.went).toEqual(["cold"]);
});

test("classes without patience, requests with a deadline and those that know of nothing are not asked", () => {
  const late = testClass("late", { patienceMs, targetMs: 1_000 });
  const rig = createRig({ settings: { classes: [...patient, late] } });
  const { state, mayGo } = memory();
  rig.send("impatient", { className: "other" }, mayGo);
  rig.done(0);
  rig.done(1);
  rig.send("due", { deadlineMs: 60_000 }, mayGo);
  rig.done(0);
  rig.done(1);
  rig.send("due by its class", { className: "late" }, mayGo);
  rig.send("unknown");
  expect(rig.went).toEqual(["impatient", "due", "due by its class", "unknown"]);
  expect(state.asked).toBe(0);
});

test("a client that goes leaves at once, and nothing goes on for it", () => {
  const rig = createRig({ settings: { classes: patient } });
  const { ticket } = rig.send("cold", {}, () => false);
  ticket?.leave();
  expect([ticket?.isWaiting, rig.admission.parked, rig.time.pendingCount]).toEqual([false, 0, 0]);
  rig.time.advance(2 * patienceMs);
  expect(rig.went).toEqual([]);
  expect(rig.meter.value("espalier_admission_held_requests", "default")).toBe(0);
  expect(rig.meter.value("espalier_admission_shed_total", "default", "client_gone")).toBe(1);
});

test("those that are held go in the order in which they came, each when it does no harm", () => {
  const rig = createRig({ settings: { classes: patient } });
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

test("with engines past their knee nobody is let go to wait for a turn instead, but for those whose patience is over", () => {
  const rig = createRig({ settings: { classes: patient } });
  const { state, mayGo } = memory();
  rig.send("cold", {}, mayGo);
  rig.fill();
  rig.send("waits", {}, () => true);
  state.hasRoom = true;
  rig.time.advance(recheckEveryMs);
  expect([rig.admission.parked, rig.admission.queued]).toEqual([1, 1]);
  rig.time.advance(patienceMs);
  expect([rig.admission.parked, rig.admission.queued]).toEqual([0, 2]);
  rig.ease();
  // In line it has the place of its arrival.
  expect(rig.went).toEqual(["cold", "waits"]);
});

test("as many are held as may wait; beyond that a request goes, and is not refused", () => {
  const rig = createRig({ settings: { classes: patient, maxQueued: 3 } });
  for (let count = 0; count < 4; count++) rig.send(`cold-${count}`, {}, () => false);
  expect([rig.admission.parked, rig.went]).toEqual([3, ["cold-3"]]);
});

test("bodies of those that are held are bounded likewise", () => {
  const rig = createRig({ settings: { classes: patient, maxQueuedBytes: 250 } });
  const sent = ["a", "b", "c"].map((name) => rig.send(name, { sizeBytes: 100 }, () => false));
  expect([rig.admission.parked, rig.went]).toEqual([2, ["c"]]);
  sent[0]!.ticket?.leave();
  rig.send("d", { sizeBytes: 100 }, () => false);
  expect([rig.admission.parked, rig.went]).toEqual([2, ["c"]]);
});

test("a bounded number is asked about at a time", () => {
  const rig = createRig({ settings: { classes: patient } });
  const { state, mayGo } = memory();
  for (let count = 0; count <= maxRechecked; count++) rig.send("cold", {}, mayGo);
  state.asked = 0;
  rig.time.advance(recheckEveryMs);
  expect(state.asked).toBe(maxRechecked);
});

test("how many wait for memory is told by class, apart from those that wait for their turn", () => {
  const rig = createRig({ settings: { classes: patient } });
  const { state, mayGo } = memory();
  rig.send("a", {}, mayGo);
  rig.send("b", {}, mayGo);
  expect(rig.meter.value("espalier_admission_held_requests", "default")).toBe(2);
  expect(rig.meter.value("espalier_admission_queued_requests", "default")).toBe(0);
  state.hasRoom = true;
  rig.time.advance(recheckEveryMs);
  expect(rig.meter.value("espalier_admission_held_requests", "default")).toBe(0);
});

test.each([1, 2, 3])("whatever comes, everybody goes or leaves, none twice (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const rig = createRig({ settings: { classes: patient, maxQueued: 8 } });
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
  rig.time.advance(2 * patienceMs);
  expect(new Set(rig.went).size).toBe(rig.went.length);
  expect(rig.went.length + gone.size).toBe(200);
  expect(rig.went.some((name) => gone.has(name))).toBe(false);
  expect([rig.admission.parked, rig.admission.queued, rig.time.pendingCount]).toEqual([0, 0, 0]);
});

test("a patience that is none is refused", () => {
  for (const wrong of [-1, 300_001, Number.NaN]) {
    expect(() => createRig({ settings: { classes: [testClass("default", { patienceMs: wrong })] } })).toThrow(
      RangeError,
    );
  }
});
