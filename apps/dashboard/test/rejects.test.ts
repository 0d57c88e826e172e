import { expect, test } from "vitest";
import { readOverview } from "../src/model/overview.ts";
import { rejectingMs, watchRejects } from "../src/model/rejects.ts";
import { sections } from "./fixtures.ts";

const overview = (router: string, ...counts: readonly (readonly [name: string, shed: number])[]) =>
  readOverview({
    ...sections({ router }),
    queues: counts.map(([name, shed]) => ({ name, queued: 0, waited: 0, waitedMs: 0, shed })),
  });

// Symptom: hours after a burst, the top of the page still named the queue that had rejected requests then.
test("a queue is named while it rejects, not for what it rejected since its router's start", () => {
  const rejecting = watchRejects();
  const batch = (shed: number) => [overview("router-1", ["batch", shed], ["default", 0])];
  expect(rejecting(batch(9_000), 0)).toEqual([]);
  expect(rejecting(batch(9_001), 1_000)).toEqual(["batch"]);
  expect(rejecting(batch(9_001), 1_000 + rejectingMs - 1)).toEqual(["batch"]);
  expect(rejecting(batch(9_001), 1_000 + rejectingMs)).toEqual([]);
  // A router that starts again counts from 0.
  expect(rejecting(batch(3), 100_000)).toEqual([]);
  expect(rejecting(batch(4), 101_000)).toEqual(["batch"]);
});

test("a router that is followed later adds nothing that it rejected before", () => {
  const rejecting = watchRejects();
  const first = overview("router-1", ["batch", 5]);
  expect(rejecting([first], 0)).toEqual([]);
  expect(rejecting([first, overview("router-2", ["batch", 70])], 1_000)).toEqual([]);
  expect(rejecting([first, overview("router-2", ["batch", 71])], 2_000)).toEqual(["batch"]);
  expect(rejecting([], 3_000)).toEqual([]);
});
