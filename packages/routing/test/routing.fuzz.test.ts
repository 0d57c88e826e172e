import { type FuzzTarget, fuzzInFile, seedsInHex } from "@espalier/testing";
import { expect, test } from "vitest";
import { maxReportedCredits, readCreditNote, writeCreditNote } from "../src/copy-credits.ts";
import { noTransfers } from "../src/disaggregation/index.ts";
import { readRoleNote, writeRoleNote } from "../src/pairs/fleet-roles.ts";
import { readDemandNote, writeDemandNote } from "../src/scale/demand-note.ts";
import { maxNotedTargets, readTimesNote, writeTimesNote } from "../src/work/learned-note.ts";
import { sumsOfFetch, sumsOfFit } from "../src/work/learned-times.ts";

const fit = { msPerKilotoken: 90, msPerMegapair: 2, fixedMs: 8 };

const note = writeTimesNote({
  ...{ fit, sums: sumsOfFit(fit, 30), msPerOutputToken: 11, answers: 9 },
  ...{ ageMs: 500, targets: [{ key: "engine-a", log: 0.2, known: 0.9 }] },
  fetches: [{ tier: "cpu", msPerKilotoken: 3, sums: sumsOfFetch(3, 4), ageMs: 70 }],
});

const target: FuzzTarget = {
  name: "note of learned times",
  seeds: [note],
  read: (bytes) => expect(readTimesNote(bytes).targets.length).toBeLessThanOrEqual(maxNotedTargets),
};

const credits: FuzzTarget = {
  name: "note of credits",
  seeds: [
    writeCreditNote([
      { key: 0x89ab_cdef, paidMs: 1_234 },
      { key: 5, paidMs: -70 },
    ]),
  ],
  read: (bytes) => expect(readCreditNote(bytes).length).toBeLessThanOrEqual(maxReportedCredits),
};

const roles: FuzzTarget = {
  name: "note of roles",
  seeds: [
    writeRoleNote({
      work: { prefillMs: 5, decodeMs: 7 },
      decision: { count: 3, ageMs: 40 },
      transfers: { sums: noTransfers, ageMs: 0 },
    }),
    writeRoleNote({
      work: { prefillMs: 11, decodeMs: 12 },
      decision: undefined,
      transfers: { sums: { weight: 2, tokens: 3_000, ms: 40, squareTokens: 5_000_000, tokenMs: 60_000 }, ageMs: 70 },
    }),
  ],
  read(bytes) {
    const note = readRoleNote(bytes);
    if (note) expect(note.work.prefillMs + note.work.decodeMs).toBeGreaterThanOrEqual(0);
  },
};

const demand: FuzzTarget = {
  name: "note of demand",
  seeds: [
    writeDemandNote([
      {
        ...{ model: "m", requestsPerS: 3.5, prefill: 0.4, outputPerS: 700, waiting: 2, waitingPrefill: 0.1 },
        ...{ waitingOutputPerS: 9, idleMs: 12, desired: { both: 3, prefill: 1, decode: 2 } },
      },
    ]),
  ],
  read(bytes) {
    for (const { desired, prefill } of readDemandNote(bytes)) {
      expect(Math.min(desired.both, prefill)).toBeGreaterThanOrEqual(0);
      expect(Math.max(desired.both, prefill)).toBeLessThanOrEqual(1e9);
    }
  },
};

const targets = [target, credits, roles, demand];
fuzzInFile(test, "whatever comes is read, or refused with a RangeError", targets);

test("encoders write the bytes that routers in the field read", async () => {
  await expect(seedsInHex(targets)).toMatchFileSnapshot("golden/notes.txt");
});
