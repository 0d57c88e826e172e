import { asRouterId, createSeededRandom, EspalierError } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  groupOfKey,
  maxUsageFrameBytes,
  maxUsageReports,
  maxUsageTokens,
  readUsageFrame,
  type UsageFrame,
  usageGroup,
  usageKey,
  usageNoteKind,
  writeUsageFrame,
} from "../../src/usage/usage-frame.ts";
import { createUsageRouter } from "./usage-rig.ts";

const frameOf = (changes: Partial<UsageFrame> = {}): UsageFrame => ({
  origin: { router: asRouterId("router-1"), epoch: 1_700_000_000_000 },
  counter: 7,
  relayedAgeMs: undefined,
  reports: [{ key: usageKey("m", "default", "x"), counter: 7, tokens: 123_456, lift: 0, firstAgeMs: 1_500 }],
  ...changes,
});

function expectInvalid(bytes: Uint8Array): void {
  const error = (() => {
    try {
      readUsageFrame(bytes);
      return undefined;
    } catch (caught) {
      return caught;
    }
  })();
  expect(error).toBeInstanceOf(EspalierError);
  expect((error as EspalierError).code).toBe("mesh_frame_invalid");
}

test("a frame is read as it was written", () => {
  const random = createSeededRandom(1);
  for (let round = 0; round < 200; round++) {
    const isRelayed = random.float() < 0.5;
    const counter = random.integer(2 ** 30);
    const frame = frameOf({
      counter,
      relayedAgeMs: isRelayed ? random.integer(100_000) : undefined,
      reports: Array.from({ length: random.integer(30) }, () => ({
        key: random.integer(2 ** 30) * 2 ** 23 + random.integer(2 ** 23),
        counter: isRelayed ? random.integer(counter + 1) : counter,
        tokens: random.integer(2 ** 31),
        lift: random.float() < 0.5 ? 0 : random.integer(2 ** 31),
        firstAgeMs: random.float() < 0.5 ? undefined : random.integer(2 ** 30) - 2 ** 29,
      })),
    });
    const bytes = writeUsageFrame(frame);
    expect(bytes[0]).toBe(usageNoteKind);
    expect(readUsageFrame(bytes)).toEqual(frame);
  }
});

test("a report takes 9 to 15 bytes, and 3 more for a request that has waited for a minute", () => {
  const reports = (tokens: number, lift: number, firstAgeMs?: number) =>
    Array.from({ length: 100 }, (_, key) => ({ key, counter: 7, tokens, lift, firstAgeMs }));
  const sizeOf = (frame: UsageFrame): number => writeUsageFrame(frame).length;
  const head = sizeOf(frameOf({ reports: [] }));
  expect((sizeOf(frameOf({ reports: reports(4_000, 0) })) - head) / 100).toBe(9);
  expect((sizeOf(frameOf({ reports: reports(20_000_000, 20_000_000) })) - head) / 100).toBe(15);
  expect((sizeOf(frameOf({ reports: reports(4_000, 0, 60_000) })) - head) / 100).toBe(12);
});

test("every cut, and frames of other kinds are refused; what a later version adds is left alone", () => {
  const bytes = writeUsageFrame(frameOf());
  for (let length = 0; length < bytes.length; length++) expectInvalid(bytes.subarray(0, length));
  expectInvalid(Uint8Array.of(usageNoteKind + 1, ...bytes.subarray(1)));
  expect(readUsageFrame(Uint8Array.of(usageNoteKind, 2, ...bytes.subarray(2), 1, 2, 3))).toEqual(frameOf());
});

test("frames past the bounds are refused: bytes, reports, tokens, keys, nameless routers, reports older than their origin", () => {
  const report = frameOf().reports[0]!;
  const most = writeUsageFrame(frameOf({ reports: Array(maxUsageReports).fill(report) }));
  expect(readUsageFrame(most).reports).toHaveLength(maxUsageReports);
  expectInvalid(writeUsageFrame(frameOf({ reports: Array(maxUsageReports + 1).fill(report) })));
  expectInvalid(new Uint8Array(maxUsageFrameBytes + 1).fill(usageNoteKind));
  expect(
    readUsageFrame(writeUsageFrame(frameOf({ reports: [{ ...report, tokens: maxUsageTokens }] }))).reports,
  ).toHaveLength(1);
  expectInvalid(writeUsageFrame(frameOf({ reports: [{ ...report, tokens: maxUsageTokens + 1 }] })));
  expectInvalid(writeUsageFrame(frameOf({ reports: [{ ...report, lift: maxUsageTokens + 1 }] })));
  expectInvalid(writeUsageFrame(frameOf({ reports: [{ ...report, key: 2 ** 53 }] })));
  expectInvalid(writeUsageFrame(frameOf({ origin: { router: asRouterId(""), epoch: 1 } })));
  expectInvalid(writeUsageFrame(frameOf({ relayedAgeMs: 1, counter: 7, reports: [{ ...report, counter: -1 }] })));
});

test("an invalid frame is counted, and none of it is taken", () => {
  const router = createUsageRouter("b", { time: createVirtualTime() });
  expect(() => router.plane.exchange.receive(Uint8Array.of(usageNoteKind, 0))).toThrow(EspalierError);
  expect(router.meter.value("espalier_usage_frames_received_total", "invalid")).toBe(1);
});

test("keys are safe integers, differ by each part, and tell the class and pool that they are of", () => {
  const keys = new Set<number>();
  for (let tenant = 0; tenant < 20_000; tenant++) {
    const key = usageKey("pool", tenant % 2 === 0 ? "a" : "b", `tenant-${tenant}`);
    expect(Number.isSafeInteger(key)).toBe(true);
    expect(groupOfKey(key)).toBe(usageGroup("pool", tenant % 2 === 0 ? "a" : "b"));
    keys.add(key);
  }
  expect(keys.size).toBe(20_000);
  expect(usageKey("pool", "a", "x")).not.toBe(usageKey("pool2", "a", "x"));
});
