import { expect, test } from "vitest";
import { createRig, type Rig, type RigOptions } from "./rig.ts";

const held = (rig: Rig): number | undefined => rig.meter.value("espalier_admission_cold_start_requests", "default");

/** A pool none of whose engines is up. */
function emptyRig(options: RigOptions = {}): Rig {
  const rig = createRig({ targets: 2, holdMs: 60_000, ...options });
  for (const target of rig.targets) target.usable = false;
  return rig;
}

test("requests wait while no engine is up, and go in their order once one is", async () => {
  const rig = emptyRig();
  const sent = ["a", "b", "c"].map((name) => rig.send(name));
  await rig.time.advance(59_000);
  expect(rig.admission.queued).toBe(3);
  expect(held(rig)).toBe(3);
  rig.targets[1]!.usable = true;
  await rig.time.advance(100);
  expect(rig.went).toEqual(["a", "b", "c"]);
  expect(sent.map(({ target }) => target)).toEqual([1, 1, 1]);
  expect(sent[0]!.ticket?.waitedMs).toBeGreaterThanOrEqual(59_000);
  expect(held(rig)).toBe(0);
});

test("one that waited long enough is refused with a time to come back; later ones still wait", async () => {
  const rig = emptyRig({ holdMs: 30_000 });
  const first = rig.send("first", { tenant: "a" });
  await rig.time.advance(20_000);
  // A tenant that has had less goes first, and must not keep the other one's request beyond its time.
  const second = rig.send("second", { tenant: "b" });
  await rig.time.advance(10_100);
  expect(first.refusal).toBe("no_engine_available 30");
  expect(second.refusal).toBeUndefined();
  expect(rig.meter.value("espalier_admission_shed_total", "default", "no_engine")).toBe(1);
  rig.targets[0]!.usable = true;
  await rig.time.advance(100);
  expect(rig.went).toEqual(["second"]);
});

test("a request that waits for a busy engine is not refused when the hold is over", async () => {
  const rig = createRig({ targets: 1, holdMs: 1_000 });
  rig.fill();
  const sent = rig.send("patient");
  await rig.time.advance(5_000);
  expect(sent.refusal).toBeUndefined();
  expect(held(rig)).toBe(0);
  rig.unload();
  expect(rig.went).toEqual(["patient"]);
});

test("a deadline counts while no engine is up, too", async () => {
  const rig = emptyRig();
  const sent = rig.send("urgent", { deadlineMs: 10_000 });
  await rig.time.advance(4_100);
  expect(sent.refusal).toMatch(/^deadline_missed /);
});

test("the queue's bound holds for them, and a client that leaves makes room", () => {
  const rig = emptyRig({ settings: { maxQueued: 2 } });
  const sent = ["a", "b", "c"].map((name) => rig.send(name));
  expect(sent.map(({ refusal }) => refusal)).toEqual([undefined, undefined, "queue_full 1"]);
  sent[0]!.ticket?.leave();
  expect(held(rig)).toBe(1);
  expect(rig.send("d").refusal).toBeUndefined();
});

test("without a hold, and for a request that only one engine can serve, nothing waits", () => {
  const without = emptyRig({ holdMs: 0 });
  without.send("goes");
  expect(without.went).toEqual(["goes"]);
  const rig = emptyRig();
  rig.send("continues", { onlyEngine: "engine-0" });
  expect(rig.went).toEqual(["continues"]);
});
