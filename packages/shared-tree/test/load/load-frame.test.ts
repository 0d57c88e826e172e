import { asRouterId, createSeededRandom, EspalierError } from "@espalier/core";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  type LoadFrame,
  maxLoadFrameBytes,
  maxLoadFrameReports,
  maxLoadKeyBytes,
  readLoadFrame,
  withoutAnswers,
  writeLoadFrame,
} from "../../src/load/load-frame.ts";
import { maxGaugeValue } from "../../src/load/load-gauge.ts";
import { createLoadRouter, gaugeOf } from "./load-rig.ts";

const frame: LoadFrame = {
  origin: { router: asRouterId("router-ä"), epoch: 1_700_000_000_123 },
  counter: 300,
  sentWallMs: 1_700_000_000_500,
  relayedAgeMs: undefined,
  covers: undefined,
  reports: [
    { number: 0, key: "engine-0/0", counter: 300, ...gaugeOf(2) },
    { number: 200, key: undefined, counter: 300, ...gaugeOf(0) },
  ],
};

const refused = expect.objectContaining({ name: "EspalierError", code: "mesh_frame_invalid" });

function errorOf(action: () => unknown): unknown {
  try {
    return action();
  } catch (error) {
    return error;
  }
}

test.each<Partial<LoadFrame>>([
  {},
  { reports: [] },
  { covers: { from: 0, to: Number.POSITIVE_INFINITY } },
  { covers: { from: 5, to: 70 } },
  { relayedAgeMs: 1_499, reports: [{ number: 3, key: "e", counter: 17, ...gaugeOf(1) }] },
])("what is written is read again: %j", (part) => {
  expect(readLoadFrame(writeLoadFrame({ ...frame, ...part }))).toEqual({ ...frame, ...part });
});

test("a change of one target takes 31 bytes and the router's name, and a further one about 8", () => {
  const one = { ...frame, reports: frame.reports.slice(1) };
  const report = { number: 7, key: undefined, counter: 300, ...gaugeOf(30), activeTokens: 0 };
  const size = (reports: LoadFrame["reports"]): number => writeLoadFrame({ ...one, reports }).length;
  expect(size([report])).toBeLessThanOrEqual(31 + "router-ä".length + 1);
  expect(size([report, report]) - size([report])).toBeLessThanOrEqual(8);
});

test("routers that do not know the number of answers get the frame without it, and the rest of it as it was", () => {
  const of = (answers: number): LoadFrame => ({
    ...frame,
    reports: [{ number: 1, key: "engine", counter: 300, ...gaugeOf(2), yieldingInFlight: 1, answers }],
  });
  expect(withoutAnswers(writeLoadFrame(of(2)))).toEqual(writeLoadFrame(of(0)));
  expect(writeLoadFrame(of(0))[1]! & 32).toBe(0);
});

test.each([
  ["activeTokens", 4],
  ["lendingTokens", 8],
  ["yieldingInFlight", 16],
  ["answers", 32],
] as const)("%s are in a frame, of each of its reports, only where one has some", (gauge, flag) => {
  const of = (...values: readonly number[]): LoadFrame => ({
    ...frame,
    reports: values.map((tokens, number) => ({
      ...{ number, key: undefined, counter: 300 },
      ...gaugeOf(2),
      ...{ activeTokens: 0, lendingTokens: 0, yieldingInFlight: 0, answers: 0 },
      [gauge]: tokens,
    })),
  });
  const [without, some] = [writeLoadFrame(of(0, 0)), writeLoadFrame(of(0, 48))];
  expect(without[1]).toBe(0);
  expect(some[1]).toBe(flag);
  expect(some.length).toBe(without.length + 2);
  expect(readLoadFrame(some)).toEqual(of(0, 48));
  expect(readLoadFrame(without)).toEqual(of(0, 0));
  expect(errorOf(() => readLoadFrame(writeLoadFrame(of(maxGaugeValue + 1))))).toEqual(refused);
});

test("one past every bound is refused", () => {
  const longest = "k".repeat(maxLoadKeyBytes);
  const report = frame.reports[0]!;
  const encode = (reports: LoadFrame["reports"]): Uint8Array => writeLoadFrame({ ...frame, reports });
  expect(readLoadFrame(encode([{ ...report, key: longest, inFlight: maxGaugeValue }])).reports[0]!.key).toBe(longest);
  const tooMuch = [
    encode([{ ...report, key: `${longest}k` }]),
    encode([{ ...report, inFlight: maxGaugeValue + 1 }]),
    encode(Array.from({ length: maxLoadFrameReports + 1 }, () => frame.reports[1]!)),
    writeLoadFrame({ ...frame, origin: { router: asRouterId("r".repeat(256)), epoch: 1 } }),
    writeLoadFrame({ ...frame, origin: { router: asRouterId(""), epoch: 1 } }),
    new Uint8Array(maxLoadFrameBytes + 1),
  ];
  for (const bytes of tooMuch) expect(errorOf(() => readLoadFrame(bytes))).toEqual(refused);
  expect(
    readLoadFrame(encode(Array.from({ length: maxLoadFrameReports }, () => frame.reports[1]!))).reports,
  ).toHaveLength(maxLoadFrameReports);
});

test("another version, unknown flags, bytes too many or too few, and reports older than their origin are refused", () => {
  const bytes = writeLoadFrame(frame);
  const changed = (at: number, value: number): Uint8Array => {
    const copy = bytes.slice();
    copy[at] = value;
    return copy;
  };
  const relayed = writeLoadFrame({ ...frame, relayedAgeMs: 0, reports: [{ ...frame.reports[1]!, counter: -1 }] });
  const wrong = [changed(0, 2), changed(1, 64), Uint8Array.of(...bytes, 0), relayed, new Uint8Array(0)];
  for (let length = 1; length < bytes.length; length++) wrong.push(bytes.subarray(0, length));
  for (const one of wrong) expect(errorOf(() => readLoadFrame(one))).toEqual(refused);
});

test("arbitrary bytes, and frames with bytes changed, are read or refused, and change nothing when refused", () => {
  const random = createSeededRandom(11);
  const b = createLoadRouter("b", { capacity: 16, limits: { maxOrigins: 16 } });
  const accept = (bytes: Uint8Array): void => {
    const before = JSON.stringify(b.plane.describe());
    const outcome = errorOf(() => b.plane.exchange.receive(bytes));
    if (!(outcome instanceof EspalierError)) return;
    expect(outcome.code).toBe("mesh_frame_invalid");
    expect(JSON.stringify(b.plane.describe())).toBe(before);
  };
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => accept(bytes)),
    { seed: 12, numRuns: randomRuns(500) },
  );
  const whole = writeLoadFrame({ ...frame, covers: { from: 0, to: Number.POSITIVE_INFINITY } });
  for (let round = 0; round < 2_000; round++) {
    const bytes = whole.slice();
    for (let change = 0; change <= random.integer(3); change++)
      bytes[random.integer(bytes.length)] = random.integer(256);
    accept(bytes);
  }
  for (let slot = 0; slot < 16; slot++) {
    expect(b.plane.shared.inFlight[slot]!).toBeGreaterThanOrEqual(0);
    expect(Number.isSafeInteger(b.plane.shared.inFlight[slot]!)).toBe(true);
  }
  expect(b.meter.value("espalier_load_frames_received_total", "invalid")).toBeGreaterThan(100);
});
