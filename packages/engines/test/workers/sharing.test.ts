import { asTargetIndex, type TargetIndex } from "@espalier/core";
import { expect, test } from "vitest";
import { createHarness } from "./fleet-harness.ts";

function createSharing(others = 0) {
  const changed: string[] = [];
  const asked: string[] = [];
  return {
    changed,
    asked,
    indexOf(key: string): TargetIndex {
      asked.push(key);
      return asTargetIndex(40 + asked.length);
    },
    loadChanged: ({ key, load }: { readonly key: string; readonly load: { readonly inFlight: number } }) => {
      changed.push(`${key}: ${load.inFlight}`);
    },
    othersInFlight: (target: TargetIndex) => (target === 41 ? others : 0),
  };
}

test("indices of targets are those that the sharing gives, one for each rank", () => {
  const sharing = createSharing();
  const harness = createHarness({}, 1, sharing);
  harness.fleet.apply([harness.engine("a", { ranks: 2 }).spec, harness.engine("b").spec]);
  expect(sharing.asked).toEqual(["a", "a#1", "b"]);
  expect(harness.record("a").targets.map(({ index, key }) => [index, key])).toEqual([
    [41, "a"],
    [42, "a#1"],
  ]);
  expect(harness.fleet.target(asTargetIndex(43))?.key).toBe("b");
});

test("changes of load are told with the target", () => {
  const sharing = createSharing();
  const harness = createHarness({}, 1, sharing);
  harness.fleet.apply([harness.engine("a", { ranks: 2 }).spec]);
  const ticket = harness.record("a").targets[1]!.load.begin({ promptTokens: 3, expectedOutputTokens: 0 });
  ticket.firstToken();
  ticket.end();
  expect(sharing.changed).toEqual(["a#1: 1", "a#1: 1", "a#1: 0"]);
});

test("requests of other routers count among those that were in flight at a scrape", async () => {
  const harness = createHarness({}, 1, createSharing(7));
  await harness.fleet.start();
  await harness.apply(harness.engine("a"), harness.engine("b"));
  await harness.time.advanceAsync(1_000);
  expect(harness.target("a").signals.inFlightAtScrape).toBe(7);
  expect(harness.target("b").signals.inFlightAtScrape).toBe(0);
});
