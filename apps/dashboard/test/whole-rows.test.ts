import { expect, test } from "vitest";
import { firstCovered } from "../src/view/dom.ts";

// Symptom: the last row of a table was cut through its middle, and nothing said that there were more.
test("a row that is cut off is covered as a whole, with room for the line that counts those below", () => {
  const rows = Array.from({ length: 10 }, (_, at) => ({ top: 100 + 30 * at, bottom: 130 + 30 * at }));
  expect(firstCovered(rows, 400)).toEqual({ first: 10, heightPx: 0 });
  expect(firstCovered(rows, 399.6)).toEqual({ first: 10, heightPx: 0 });
  expect(firstCovered(rows, 395)).toEqual({ first: 9, heightPx: 25 });
  // Too little of the tenth for a line: the ninth goes, too.
  expect(firstCovered(rows, 380)).toEqual({ first: 8, heightPx: 40 });
  expect(firstCovered(rows, 250)).toEqual({ first: 4, heightPx: 30 });
  expect(firstCovered(rows, 110)).toEqual({ first: 0, heightPx: 10 });
  expect(firstCovered([], 110)).toEqual({ first: 0, heightPx: 0 });
});
