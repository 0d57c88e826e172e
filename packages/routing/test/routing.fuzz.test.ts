import { type FuzzTarget, fuzzInFile, readFuzzRequest } from "@espalier/testing";
import { expect, test } from "vitest";
import { maxNotedTargets, readTimesNote, writeTimesNote } from "../src/work/learned-note.ts";

const note = writeTimesNote({
  ...{ fit: { msPerKilotoken: 90, msPerMegapair: 2, fixedMs: 8 }, samples: 30, msPerOutputToken: 11, answers: 9 },
  ...{ ageMs: 500, targets: [{ key: "engine-a", log: 0.2, known: 0.9 }] },
  fetches: [{ tier: "cpu", msPerKilotoken: 3, samples: 4, ageMs: 70 }],
});

const target: FuzzTarget = {
  name: "note of learned times",
  seeds: [note],
  read: (bytes) => expect(readTimesNote(bytes).targets.length).toBeLessThanOrEqual(maxNotedTargets),
};

test("note of learned times: whatever comes is read, or refused with a RangeError", async () => {
  await fuzzInFile(target, 1, readFuzzRequest(process.env.ESPALIER_FUZZ));
}, 86_400_000);
