import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { classSpanMs, type EnginePlace, engineOrders, enginePlace } from "../../src/admission/index.ts";

const noon = Date.UTC(2031, 4, 5, 12);
const place = (more: Partial<EnginePlace> = {}): number =>
  enginePlace({ classesBelow: 0, arrivedWallMs: noon, workMs: 0, ...more });

describe("the place of a request in an engine", () => {
  test("is the moment at which it came, with 20 ms for each millisecond of its prompt's work", () => {
    expect(place()).toBe(noon);
    expect(place({ workMs: 150 })).toBe(noon + 3_000);
    expect(place({ arrivedWallMs: noon + 0.9, workMs: 0.01 })).toBe(noon + 1);
  });

  test("lets short prompts pass a long one for as long as that is worth, and then no more", () => {
    const long = place({ workMs: 1_000 });
    expect(place({ arrivedWallMs: noon + 19_900, workMs: 4 })).toBeLessThan(long);
    expect(place({ arrivedWallMs: noon + 20_001, workMs: 0 })).toBeGreaterThan(long);
  });

  test("is before all places of a lower class, and after all of a higher one, whatever they came with", () => {
    const random = createSeededRandom(11);
    for (let round = 0; round < 1_000; round++) {
      const any = (): Partial<EnginePlace> => ({
        arrivedWallMs: noon + random.integer(1_000_000_000),
        workMs: random.integer(100_000_000),
      });
      const classesBelow = random.integer(31) - 15;
      expect(place({ ...any(), classesBelow })).toBeLessThan(place({ ...any(), classesBelow: classesBelow + 1 }));
    }
  });

  test("is a whole number that a double holds, within its class, whatever a clock or a guess says", () => {
    const last = classSpanMs - 1;
    expect(place({ arrivedWallMs: last })).toBe(last);
    expect(place({ arrivedWallMs: last + 1 })).toBe(last);
    expect(place({ workMs: Number.POSITIVE_INFINITY })).toBe(last);
    expect(place({ arrivedWallMs: -1 })).toBe(0);
    expect(place({ workMs: -5 })).toBe(noon);
    for (const classesBelow of [-15, 15]) {
      const farthest = place({ classesBelow, arrivedWallMs: last });
      expect(Number.isSafeInteger(farthest) && Number.isSafeInteger(farthest + 1)).toBe(true);
    }
  });

  test("is the same at every router, so that sorting by it puts short ones first without starving any", () => {
    const random = createSeededRandom(12);
    const requests = Array.from({ length: 200 }, (_, at) => ({
      arrivedWallMs: noon + at * 100,
      workMs: random.integer(3_000),
    }));
    const order = requests.map((request) => ({ ...request, at: place(request) })).sort((a, b) => a.at - b.at);
    for (const [first, { arrivedWallMs, workMs }] of order.entries()) {
      // Nobody goes before it that came when its age had made up for its work.
      const limitMs = arrivedWallMs + 20 * workMs;
      for (const earlier of order.slice(0, first)) expect(earlier.arrivedWallMs).toBeLessThanOrEqual(limitMs);
    }
  });
});

test("engines take requests as they come unless they are told otherwise", () => {
  expect(engineOrders).toEqual(["arrival", "shortest"]);
});
