import { expect, test } from "vitest";
import { readDemandNote, writeDemandNote } from "../../src/scale/demand-note.ts";

test("a note of demand claims no more of anything than its readers take", () => {
  const numbers = { requestsPerS: 2e9, prefill: Number.POSITIVE_INFINITY, outputPerS: 1e9, waiting: 1, idleMs: 5e12 };
  const waiting = { waitingPrefill: 3e9, waitingOutputPerS: 0 };
  const bytes = writeDemandNote([
    { model: "m", ...numbers, ...waiting, desired: { both: 2e9, prefill: 1e9 + 1, decode: 7 } },
  ]);
  expect(readDemandNote(bytes)).toEqual([
    {
      ...{ model: "m", requestsPerS: 1e9, prefill: 1e9, outputPerS: 1e9, waiting: 1, idleMs: 1e9 },
      ...{ waitingPrefill: 1e9, waitingOutputPerS: 0, desired: { both: 1e9, prefill: 1e9, decode: 7 } },
    },
  ]);
});
