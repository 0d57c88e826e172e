import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import {
  maxNotedTargets,
  maxNotedTiers,
  maxTimesNoteBytes,
  readTimesNote,
  writeTimesNote,
} from "../../src/work/learned-note.ts";
import { isPlausible, type LearnedTimes, sumsOfFetch, sumsOfFit } from "../../src/work/learned-times.ts";

const fit = { msPerKilotoken: 79.3, msPerMegapair: 1.234567, fixedMs: 12.5 };
const base: LearnedTimes = {
  fit,
  // Not quite what the fit says: sums are told as they are.
  sums: sumsOfFit({ ...fit, fixedMs: 12.7 }, 123.4),
  msPerOutputToken: 18.25,
  answers: 50,
  ageMs: 1_500,
  targets: [],
  fetches: [],
};

const fetches: LearnedTimes["fetches"] = [
  { tier: "cpu", msPerKilotoken: 3.125, sums: sumsOfFetch(3.2, 210.5), ageMs: 40 },
  { tier: "external", msPerKilotoken: 0, sums: sumsOfFetch(0, 1), ageMs: 700_000 },
];
/** Bytes of the sums, behind what older routers write. */
const sumsBytes = (tiers: number): number => 9 * 8 + tiers * 2 * 8;

describe("a note of learned times", () => {
  test("of an older router ends with its tiers, or before them, and stands for samples that say what it says", () => {
    const older = { ...base, sums: sumsOfFit(base.fit, 123.4) };
    const reported = fetches.map((fetch) => ({ ...fetch, sums: sumsOfFetch(fetch.msPerKilotoken, fetch.sums.weight) }));
    const note = writeTimesNote({ ...base, fetches });
    expect(readTimesNote(note)).toEqual({ ...base, fetches });
    expect(readTimesNote(note.slice(0, -sumsBytes(2)))).toEqual({ ...older, fetches: reported });
    expect(readTimesNote(writeTimesNote(base).slice(0, -sumsBytes(0) - 1))).toEqual(older);
    expect(isPlausible(readTimesNote(note.slice(0, -sumsBytes(2))))).toBe(true);
  });

  test("begins as that of an older router, which reads as much of it", () => {
    // Version, three times 10 ms and so on: what was written before there were sums.
    const note = writeTimesNote({ ...base, sums: sumsOfFit(fit, 9.9), answers: 5, ageMs: 7 });
    expect([...note.slice(0, 1)]).toEqual([1]);
    expect(readTimesNote(note.slice(0, -sumsBytes(0)))).toMatchObject({ fit, answers: 5, ageMs: 7 });
  });

  test("may tell of tiers that are not known here, which are passed over", () => {
    const note = writeTimesNote({ ...base, fetches });
    const start = writeTimesNote(base).length - sumsBytes(0);
    expect(note[start]).toBe(1);
    const later = note.slice();
    later[start] = 5;
    expect(readTimesNote(later)).toEqual({ ...base, fetches: fetches.slice(1) });
    later[start] = 0;
    expect(readTimesNote(later)).toEqual({ ...base, fetches: fetches.slice(1) });
  });

  test("is read as it was written", () => {
    const targets = [
      { key: "http://10.0.0.2:8000/", log: -1.25, known: 0.999 },
      { key: "http://10.0.0.1:8000/", log: 0.75, known: 0.5 },
      { key: "ü", log: 0, known: 0 },
    ];
    const note = writeTimesNote({ ...base, targets });
    expect(readTimesNote(note)).toEqual({ ...base, targets });
    expect(note.length).toBeLessThan(100 + sumsBytes(0));
  });

  test("of any times is read within what it rounds", () => {
    const random = createSeededRandom(4);
    for (let round = 0; round < 200; round++) {
      const ms = (): number => random.float() * 10 ** random.integer(4);
      const fit = { msPerKilotoken: ms(), msPerMegapair: ms(), fixedMs: ms() };
      const sums = sumsOfFit(fit, 1_000 * random.float());
      const read = readTimesNote(writeTimesNote({ ...base, fit, sums }));
      expect([read.sums.matrix, read.sums.right]).toEqual([sums.matrix, sums.right]);
      expect(Math.abs(read.sums.weight - sums.weight)).toBeLessThanOrEqual(0.05 + 1e-9);
      for (const name of ["msPerKilotoken", "msPerMegapair", "fixedMs"] as const) {
        expect(Math.abs(read.fit[name] - fit[name])).toBeLessThan(1e-6);
      }
    }
  });

  test("has the targets that differ most when there are more than it may have", () => {
    const targets = Array.from({ length: maxNotedTargets + 1 }, (_, at) => ({
      key: `t${at}`,
      log: at / 100,
      known: 1,
    }));
    const read = readTimesNote(writeTimesNote({ ...base, targets }));
    expect(read.targets).toHaveLength(maxNotedTargets);
    expect(read.targets.map(({ key }) => key)).not.toContain("t0");
  });

  test("never gets longer than it may be, however long the keys are, and leaves out a key that is too long", () => {
    const targets = Array.from({ length: 200 }, (_, at) => ({ key: `${at}`.padStart(255, "k"), log: 0.5, known: 1 }));
    const note = writeTimesNote({ ...base, targets: [{ key: "k".repeat(256), log: 3, known: 1 }, ...targets] });
    expect(note.length).toBeLessThanOrEqual(maxTimesNoteBytes);
    expect(note.length).toBeGreaterThan(maxTimesNoteBytes - 900);
    expect(readTimesNote(note).targets.every(({ key }) => key.length === 255)).toBe(true);
  });

  test("of a later version may have more behind it", () => {
    const note = writeTimesNote(base);
    expect(readTimesNote(Uint8Array.of(...note, 1, 2, 3))).toEqual(base);
  });

  test("of another version, cut short, with too many targets or too long is refused", () => {
    const targets = [{ key: "t", log: 1, known: 1 }];
    const note = writeTimesNote({ ...base, targets, fetches });
    const ends = [writeTimesNote({ ...base, targets }).length - sumsBytes(0) - 1, note.length - sumsBytes(2)];
    expect(() => readTimesNote(Uint8Array.of(2, ...note.slice(1)))).toThrow(RangeError);
    for (let length = 0; length < note.length; length++) {
      if (ends.includes(length)) continue;
      expect(() => readTimesNote(note.slice(0, length)), `${length} bytes`).toThrow(RangeError);
    }
    const empty = writeTimesNote(base).slice(0, -sumsBytes(0));
    const many = Uint8Array.of(...empty.slice(0, -2), 0x81, 0x02);
    expect(() => readTimesNote(many)).toThrow("257, maximum 256");
    expect(() => readTimesNote(Uint8Array.of(...empty.slice(0, -1), maxNotedTiers + 1))).toThrow("17, maximum 16");
    expect(() => readTimesNote(new Uint8Array(maxTimesNoteBytes + 1))).toThrow(RangeError);
  });

  test("of any bytes is read or refused, and nothing else", () => {
    const random = createSeededRandom(9);
    for (let round = 0; round < 2_000; round++) {
      const bytes = Uint8Array.from({ length: random.integer(60) }, () => random.integer(256));
      if (bytes.length > 0) bytes[0] = 1;
      try {
        readTimesNote(bytes);
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }
  });
});
