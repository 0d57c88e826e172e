import { describe, expect, test } from "vitest";
import type { EngineEpoch } from "../../src/facts/engine-epoch.ts";
import type { FoldState } from "../../src/facts/fact-fold.ts";
import { compareEpoch, MarkHistory, maxKnownMarks } from "../../src/feeds/feed-epoch.ts";
import { checkFeedLimits, defaultFeedLimits } from "../../src/feeds/feed-writer.ts";
import { KeptRecords, planTakeover } from "../../src/feeds/takeover.ts";

const startUs = 1_700_000_000_000_000;
const mark = (sequence: number, timestampUs = startUs + sequence * 1_000, checksum = sequence * 7) => ({
  sequence,
  timestampUs,
  checksum,
});

function history(from: number, to: number, shiftUs = 0): MarkHistory {
  const marks = new MarkHistory();
  for (let sequence = from; sequence <= to; sequence++) marks.add(mark(sequence, startUs + sequence * 1_000 + shiftUs));
  return marks;
}

describe("the marks of a run", () => {
  test("of the latest 4,096 messages and of the first are remembered, one more is not", () => {
    const marks = history(10, 10 + maxKnownMarks + 1);
    expect(marks.compare(mark(10))).toBe("equal");
    expect(marks.compare(mark(11))).toBe("not-known");
    expect(marks.compare(mark(12))).toBe("equal");
    expect(marks.compare(mark(12, 12_000, 1))).toBe("different");
    expect(marks.compare(mark(10, 1))).toBe("different");
    expect(marks.compare(mark(9_999))).toBe("not-known");
    expect(new MarkHistory().compare(mark(0))).toBe("not-known");
  });
});

describe("epochs are compared", () => {
  const epoch: EngineEpoch = { ...mark(0), predecessor: null };
  const secondUs = 1_000_000;
  /** Named by a message that was not its first; the latest is of 1 s after that. */
  const inTheMiddle = { epoch: { ...mark(9), predecessor: null }, last: mark(1_000) };
  test.each([
    ["by the latest message", history(5, 20), { epoch, last: mark(15) }, "same"],
    ["by the one that names it", history(0, 3), { epoch, last: mark(15) }, "same"],
    [
      "a message with the same number and another content",
      history(0, 20, 9 * secondUs),
      { epoch, last: mark(15) },
      "later",
    ],
    ["nothing of what others know is there", history(16, 20), { epoch, last: mark(15) }, "later"],
    ["a lower number, made much later", history(3, 8, 2 * secondUs), { epoch, last: mark(15) }, "later"],
    ["a lower number, made a little later", history(3, 8, 100_000), { epoch, last: mark(15) }, "unknown"],
    ["a lower number than the one that names it, made much later", history(0, 2, 1_500_000), inTheMiddle, "later"],
    ["a lower number than that, made a little later", history(0, 2, 1_005_000), inTheMiddle, "unknown"],
    ["what is read is older", history(3, 8), { epoch, last: mark(15) }, "older"],
    ["what is read is older and another epoch", history(0, 8, -secondUs), { epoch, last: mark(15) }, "older"],
    ["nothing was read", new MarkHistory(), { epoch, last: mark(15) }, "unknown"],
    ["only the name is known", history(0, 3), { epoch, last: undefined }, "same"],
  ] as const)("%s", (_what, marks, known, verdict) => {
    expect(compareEpoch(marks, known)).toBe(verdict);
  });

  test("without clocks by numbers and checksums alone", () => {
    const marks = new MarkHistory();
    for (let sequence = 3; sequence < 9; sequence++) marks.add(mark(sequence, -1));
    expect(compareEpoch(marks, { epoch: { ...mark(0, -1), predecessor: null }, last: mark(15, -1) })).toBe("unknown");
    expect(compareEpoch(marks, { epoch: { ...mark(0, -1), predecessor: null }, last: mark(5, -1) })).toBe("same");
    expect(compareEpoch(marks, { epoch: { ...mark(0, -1), predecessor: null }, last: mark(5, -1, 1) })).toBe("later");
  });
});

describe("a takeover", () => {
  const state: FoldState = {
    target: "t",
    epoch: { ...mark(0), predecessor: null },
    last: mark(100),
    isComplete: true,
    progress: "current",
  };
  const facts = {
    ...{ state, earliest: mark(0), newest: mark(120), isComplete: true, keptFrom: 90, completeTo: 100 },
    isAwaited: false,
  };
  const open: FoldState = { ...state, isComplete: false, progress: "open" };
  /** The epoch is named by a message in the middle of what was read. */
  const later = {
    ...{ ...facts, keptFrom: 0, completeTo: 49 },
    state: { ...state, epoch: { ...mark(50), predecessor: null }, isComplete: false },
  };
  const loading: FoldState = { ...state, progress: "loading" };
  test.each([
    ["what is kept connects", facts, { how: "records", from: 101 }],
    ["it connects exactly", { ...facts, keptFrom: 101 }, { how: "records", from: 101 }],
    ["one is missing", { ...facts, keptFrom: 102 }, { how: "state" }],
    ["nothing is kept", { ...facts, keptFrom: undefined }, { how: "state" }],
    ["the fold has it all", { ...facts, newest: mark(100), keptFrom: 101 }, { how: "records", from: 101 }],
    ["the fold is beyond", { ...facts, newest: mark(50), keptFrom: 51 }, { how: "records", from: 101 }],
    ["a hole can be filled", { ...facts, state: open, completeTo: 95 }, { how: "records", from: 96 }],
    ["a hole is too far back", { ...facts, state: open, completeTo: 80 }, { how: "state" }],
    [
      "a hole, and holes of the own",
      { ...facts, state: open, completeTo: 80, isComplete: false },
      { how: "records", from: 101 },
    ],
    ["a state is on its way, and all is known", { ...facts, state: loading }, { how: "state" }],
    ["a state is on its way", { ...facts, state: loading, isComplete: false }, { how: "wait" }],
    ["a state is on its way that reaches further", { ...facts, state: loading, newest: mark(99) }, { how: "wait" }],
    [
      "it began to read later",
      { ...facts, isComplete: false, earliest: mark(110), keptFrom: 110 },
      { how: "records", from: 110, gapFrom: 101 },
    ],
    [
      "it began later and keeps too little",
      { ...facts, isComplete: false, earliest: mark(110), keptFrom: 112 },
      { how: "state" },
    ],
    [
      "all was read before the message that names the epoch, and nothing is folded",
      { ...later, state: { ...later.state, last: undefined }, keptFrom: 0, completeTo: 49 },
      { how: "state" },
    ],
    ["all was read before it, and the fold lacks that", { ...later, completeTo: 49 }, { how: "state" }],
    ["all was read before it, and the fold has had it", { ...later, completeTo: 50 }, { how: "records", from: 51 }],
    [
      "it has read from before it, not all",
      { ...later, state: { ...later.state, last: undefined }, isComplete: false, completeTo: 49 },
      { how: "state" },
    ],
    [
      "it has read from before it, not all, and what others have written may come",
      { ...later, state: { ...later.state, last: undefined }, isComplete: false, completeTo: 49, isAwaited: true },
      { how: "wait" },
    ],
    [
      "it has read all, and what others have written may come",
      { ...later, state: { ...later.state, last: undefined }, completeTo: 49, isAwaited: true },
      { how: "state" },
    ],
    [
      "it has read from before it, not all, and others have gone on",
      { ...later, isComplete: false, completeTo: 49 },
      { how: "records", from: 101 },
    ],
    ["all was read from before it, but not as far as others", { ...later, newest: mark(99) }, { how: "wait" }],
    ["nothing is folded", { ...facts, state: { ...state, last: undefined }, keptFrom: 0 }, { how: "records", from: 0 }],
  ] as const)("when %s", (_what, given, plan) => {
    expect(planTakeover(given)).toEqual(plan);
  });
});

describe("kept records", () => {
  const record = (sequence: number, bytes = 10) => ({
    ...mark(sequence),
    kind: "record" as const,
    isComplete: true,
    ops: new Uint8Array(bytes),
  });

  test("beyond the bound on records the oldest goes", () => {
    const kept = new KeptRecords({ maxKeptRecords: 3, maxKeptBytes: 1_000_000 });
    for (let sequence = 5; sequence < 8; sequence++) kept.push(record(sequence));
    expect([kept.start, kept.count]).toEqual([5, 3]);
    kept.push(record(8));
    expect([kept.start, kept.count]).toEqual([6, 3]);
    expect(kept.since(7)).toHaveLength(2);
  });

  test("beyond the bound on bytes as many go as it takes", () => {
    const kept = new KeptRecords({ maxKeptRecords: 1_000, maxKeptBytes: 1_000 });
    for (let sequence = 0; sequence < 4; sequence++) kept.push(record(sequence, 90));
    expect([kept.start, kept.count, kept.byteLength]).toEqual([0, 4, 1_000]);
    kept.push(record(4, 91));
    expect([kept.start, kept.count]).toEqual([2, 3]);
    kept.push(record(5, 2_000));
    expect([kept.start, kept.count, kept.byteLength]).toEqual([6, 0, 0]);
  });

  test("gaps count by their ends", () => {
    const kept = new KeptRecords(defaultFeedLimits);
    kept.push(record(1));
    kept.push({ kind: "gap", from: 2, to: 6 });
    kept.push(record(7));
    expect(kept.since(4)).toHaveLength(2);
    kept.dropTo(5);
    expect([kept.start, kept.count]).toEqual([2, 2]);
    kept.dropTo(6);
    expect([kept.start, kept.count]).toEqual([7, 1]);
    kept.restartAfter(9);
    expect([kept.start, kept.count, kept.byteLength]).toEqual([10, 0, 0]);
  });
});

test.each([{ maxKeptRecords: 0 }, { maxKeptBytes: -1 }, { minCheckpointOps: Number.NaN }, { maxCheckpointAgeMs: 0 }])(
  "limits of %o are refused",
  (limits) => {
    expect(() => checkFeedLimits(limits)).toThrow(RangeError);
  },
);
