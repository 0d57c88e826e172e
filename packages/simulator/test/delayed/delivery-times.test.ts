import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { deliveryTimes, nextSecondMs } from "../../src/delayed/delivery.ts";
import { sharings } from "../../src/run.ts";
import { timing } from "./tier-rig.ts";

describe("when routers hear of what happens", () => {
  test("a mesh takes its measured delays on top of the engine's", () => {
    const times = deliveryTimes("mesh", 8, timing);
    expect(times.factsDueMs?.(100)).toBe(135);
    expect(times.placementsDueMs(100)).toBe(130);
    expect(times.loadDueMs(100)).toBe(111);
  });

  test("a router that is alone waits only for the engines", () => {
    for (const sharing of ["mesh", "gossip-1s", "oracle", "events-only"] as const) {
      const times = deliveryTimes(sharing, 1, timing);
      expect(times.factsDueMs?.(100)).toBe(105);
      expect(times.placementsDueMs(100)).toBe(100);
    }
  });

  test("who sees everything waits only for the engines, however many routers there are", () => {
    const times = deliveryTimes("oracle", 8, timing);
    expect([times.factsDueMs?.(100), times.placementsDueMs(100), times.loadDueMs(100)]).toEqual([105, 100, 100]);
  });

  test("gossip goes out at the next whole second", () => {
    const times = deliveryTimes("gossip-1s", 8, timing);
    expect(times.factsDueMs?.(100)).toBe(1_002);
    // The reader has it only after the second has struck.
    expect(times.factsDueMs?.(996)).toBe(2_002);
    expect(times.placementsDueMs(999.9)).toBe(1_002);
    expect(times.loadDueMs(1_000)).toBe(1_002);
  });

  test("a whole second is over when it strikes", () => {
    expect(nextSecondMs(0)).toBe(1_000);
    expect(nextSecondMs(999.999)).toBe(1_000);
    expect(nextSecondMs(1_000)).toBe(2_000);
  });

  test("engines tell nothing where nothing is shared", () => {
    expect(deliveryTimes("none", 8, timing).factsDueMs).toBeUndefined();
  });

  test("nothing overtakes what happened before", () => {
    const random = createSeededRandom(3);
    for (const sharing of sharings) {
      const { factsDueMs, placementsDueMs, loadDueMs } = deliveryTimes(sharing, 3, timing);
      let atMs = 0;
      let last = [0, 0, 0];
      const overtaken: number[] = [];
      for (let step = 0; step < 2_000; step++) {
        atMs += random.float() * 20;
        const due = [factsDueMs?.(atMs) ?? atMs, placementsDueMs(atMs), loadDueMs(atMs)];
        if (due.some((dueMs, index) => dueMs < atMs || dueMs < last[index]!)) overtaken.push(atMs);
        last = due;
      }
      expect(overtaken).toEqual([]);
    }
  });
});
