import { createAdmissionMeters } from "@espalier/routing";
import { createSeriesMeter } from "@espalier/testing";
import { expect, test } from "vitest";
import { countClasses } from "../src/routing/admission-parts.ts";

test("what passes through is counted by class, over all that asked for the class", () => {
  const { meters, counts } = countClasses(createAdmissionMeters(createSeriesMeter()));
  const [first, second] = [meters.of("batch"), meters.of("batch")];
  first.queued(1);
  second.queued(1);
  second.queued(-1);
  second.waited(250);
  first.shed("queue_full");
  first.shed("demoted");
  meters.of("interactive").queued(1);
  expect(counts("batch")).toEqual({ name: "batch", queued: 1, waited: 1, waitedMs: 250, shed: 1 });
  expect(counts("interactive")).toMatchObject({ queued: 1, shed: 0 });
  expect(counts("never asked for")).toMatchObject({ queued: 0, waited: 0 });
});

test("the meters behind are told as before", () => {
  const meter = createSeriesMeter();
  const { meters } = countClasses(createAdmissionMeters(meter));
  const batch = meters.of("batch");
  batch.queued(1);
  batch.shed("preempted");
  batch.tokens("prompt", 7);
  expect(meter.value("espalier_admission_queued_requests", "batch")).toBe(1);
  expect(meter.value("espalier_admission_shed_total", "batch", "preempted")).toBe(1);
  expect(meter.value("espalier_admission_tokens_total", "batch", "prompt")).toBe(7);
});
