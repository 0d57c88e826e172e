import { expect, test } from "vitest";
import { maxScanned, rescanMs } from "../../src/admission/index.ts";
import { createRig, testClass } from "./rig.ts";

test("with every engine past its saturation limit requests wait, and go in order of arrival when there is capacity", () => {
  const rig = createRig({ targets: 1, settings: { classes: [testClass("default")] } });
  rig.fill();
  const sent = ["a", "b", "c"].map((name) => rig.send(name));
  expect(sent.map(({ ticket }) => ticket?.isWaiting)).toEqual([true, true, true]);
  expect(rig.admission.queued).toBe(3);
  rig.unload();
  expect(rig.went).toEqual(["a"]);
  rig.done(0);
  rig.done(0);
  expect(rig.went).toEqual(["a", "b", "c"]);
  expect(rig.admission.queued).toBe(0);
});

test("capacity that nobody reports is found within a rescan, which ends with the last that waits", () => {
  const rig = createRig();
  rig.fill();
  rig.send("a");
  expect(rig.time.pendingCount).toBe(1);
  rig.time.advance(rescanMs - 1);
  for (const { load } of rig.targets) load.pendingPrefillTokens = 0;
  expect(rig.went).toEqual([]);
  rig.time.advance(1);
  expect(rig.went).toEqual(["a"]);
  expect(rig.time.pendingCount).toBe(0);
});

test("how long a request waited is told", () => {
  const rig = createRig();
  rig.fill();
  const { ticket } = rig.send("a");
  rig.time.advance(15);
  rig.unload();
  expect(ticket).toMatchObject({ isWaiting: false, waitedMs: 15 });
});

test("nobody is held up by a request before it whose own engine is busy", () => {
  const rig = createRig({ settings: { classes: [testClass("default")] } });
  rig.fill();
  for (let count = 0; count < 10; count++) rig.send(`bound-${count}`, { onlyEngine: "engine-0" });
  rig.send("free");
  rig.done(1);
  expect(rig.went).toEqual(["free"]);
});

test("one scan tries a bounded number of requests", () => {
  const classes = [testClass("default")];
  const rig = createRig({ settings: { classes, maxQueued: 2 * maxScanned } });
  rig.fill();
  for (let count = 0; count < maxScanned - 1; count++) rig.send("bound", { onlyEngine: "engine-0" });
  rig.send("within");
  rig.send("beyond");
  rig.done(1);
  expect(rig.went).toEqual(["within"]);
  rig.done(1);
  expect(rig.went).toEqual(["within", "beyond"]);
});

test("a request one past what a scan tries has to wait until one before it is gone", () => {
  const rig = createRig({ settings: { classes: [testClass("default")] } });
  rig.fill();
  const bound = Array.from({ length: maxScanned }, () => rig.send("bound", { onlyEngine: "engine-0" }));
  rig.send("beyond");
  rig.done(1);
  expect(rig.went).toEqual([]);
  bound[0]!.ticket?.leave();
  rig.admission.capacityFreed();
  expect(rig.went).toEqual(["beyond"]);
});

test("a client that is gone leaves at once, and what it leaves twice or late changes nothing", () => {
  const rig = createRig({ targets: 1 });
  rig.fill();
  const gone = rig.send("gone");
  const stays = rig.send("stays");
  gone.ticket?.leave();
  gone.ticket?.leave();
  expect(rig.admission.queued).toBe(1);
  rig.unload();
  stays.ticket?.leave();
  expect(rig.went).toEqual(["stays"]);
  expect(gone.target).toBe(-1);
  expect(rig.admission.queued).toBe(0);
  expect(rig.meter.value("espalier_admission_shed_total", "default", "client_gone")).toBe(1);
});

test("a request that goes out and comes back in one call is no end of the scan", () => {
  const rig = createRig({ targets: 1, settings: { classes: [testClass("default")] } });
  rig.fill();
  const order: string[] = [];
  const refusing = (name: string) => ({
    targets: () => rig.targets,
    admitted() {
      order.push(name);
      // Its engine refuses the connection at once, so the load falls within the scan.
      rig.admission.capacityFreed();
    },
    refused() {},
  });
  const free = { tenant: "", expectedOutputTokens: 0, sizeBytes: 0, deadlineMs: undefined, onlyEngine: undefined };
  for (const name of ["a", "b", "c"]) {
    rig.admission.enter({ className: undefined, promptTokens: 1, ...free }, refusing(name));
  }
  rig.unload();
  expect(order).toEqual(["a", "b", "c"]);
});

test("each one that goes is charged before the next one's turn, so that an engine gets no more than its saturation limit", () => {
  const rig = createRig({ targets: 2, settings: { classes: [testClass("default", { maxPendingTokens: 2_500 })] } });
  rig.fill();
  for (let count = 0; count < 20; count++) rig.send(`request-${count}`);
  rig.unload();
  expect(rig.targets.map(({ load }) => load.pendingPrefillTokens)).toEqual([3_000, 3_000]);
  expect(rig.admission.queued).toBe(14);
});

test("metrics tell by class what waits, what went and why something did not", () => {
  const rig = createRig({ targets: 1 });
  rig.fill();
  const { ticket } = rig.send("a", { className: "interactive" });
  rig.send("b", { className: "batch" });
  expect(rig.meter.value("espalier_admission_queued_requests", "interactive")).toBe(1);
  expect(rig.meter.value("espalier_admission_queued_requests", "batch")).toBe(1);
  rig.unload();
  expect(rig.meter.value("espalier_admission_queued_requests", "interactive")).toBe(0);
  expect(rig.meter.value("espalier_admission_tokens_total", "interactive", "prompt")).toBe(1_000);
  ticket?.ended(30);
  ticket?.ended(30);
  expect(rig.meter.value("espalier_admission_tokens_total", "interactive", "output")).toBe(30);
});

test("a request that never went, or had no answer, is charged nothing", () => {
  const rig = createRig({ targets: 1 });
  rig.fill();
  const { ticket } = rig.send("a");
  ticket?.ended(50);
  ticket?.leave();
  rig.targets[0]!.load.pendingPrefillTokens = 0;
  rig.send("b").ticket?.ended(0);
  expect(rig.admission.usage()).toEqual([{ className: "default", tenant: "", tokens: 1_000 }]);
});
