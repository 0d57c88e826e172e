import { asRouterId, asTargetIndex, silentMeter } from "@espalier/core";
import { NotePlane } from "@espalier/shared-tree";
import { createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { beforeEach, expect, test } from "vitest";
import {
  createSharedCredits,
  dryRunCredits,
  maxCreditMs,
  maxReportedCredits,
  publishCreditsMs,
  readCreditNote,
  type SharedCredits,
  writeCreditNote,
} from "../../src/copy-credits.ts";

const a = asTargetIndex(0);
const b = asTargetIndex(1);
let time = createVirtualTime();
let planes: readonly NotePlane[];
let meters: readonly ReturnType<typeof createSeriesMeter>[];
let routers: readonly SharedCredits[];
let frames = 0;

beforeEach(async () => {
  time = createVirtualTime();
  frames = 0;
  const { clock, scheduler } = time;
  planes = ["one", "two"].map((name) => {
    const origin = { router: asRouterId(name), epoch: 1 };
    return new NotePlane({ self: () => origin, clock, scheduler, meter: createSeriesMeter() });
  });
  for (const [number, { exchange }] of planes.entries()) {
    exchange.onFrame((frame) => {
      frames += 1;
      planes[1 - number]!.exchange.receive(frame);
    });
  }
  meters = planes.map(() => createSeriesMeter());
  routers = planes.map((channel, number) => createSharedCredits({ channel, clock, scheduler, meter: meters[number]! }));
  await Promise.all(routers.map((router) => router.start()));
});

test("credits are told together, within 25 ms", () => {
  const [one, two] = routers;
  for (let prompt = 0; prompt < 10; prompt++) one!.add(7, 30, a);
  expect(two!.paidMs(7)).toBe(0);
  time.advance(publishCreditsMs);
  expect(two!.paidMs(7)).toBeGreaterThan(299);
  expect(frames).toBe(1);
  time.advance(10 * publishCreditsMs);
  expect(frames).toBe(1);
});

test("a copy is told at once, so that the other router does not make it again", () => {
  const [one, two] = routers;
  one!.add(7, 500, a);
  time.advance(publishCreditsMs);
  two!.add(7, -400, b);
  expect(one!.paidMs(7)).toBeLessThan(100);
  expect(one!.paidMs(7)).toBeGreaterThan(98);
  expect(frames).toBe(2);
});

test("bytes that are no such note are counted and change nothing; the next note is heard", () => {
  const [one] = routers;
  planes[1]!.post("credits", Uint8Array.of(9, 9, 9));
  planes[1]!.post("others", Uint8Array.of(9, 9, 9));
  expect(meters[0]!.value("espalier_copy_credits_received_total", "invalid")).toBe(1);
  planes[1]!.post("credits", writeCreditNote([{ key: 3, paidMs: 12 }]));
  expect(one!.paidMs(3)).toBe(12);
  expect(meters[0]!.value("espalier_copy_credits_received_total", "taken")).toBe(1);
});

test("a router that shares nothing keeps its own; one that only asks pays nothing; a stopped one tells nothing", async () => {
  const { clock, scheduler } = time;
  const alone = createSharedCredits({ channel: undefined, clock, scheduler, meter: silentMeter });
  await alone.start();
  alone.add(1, 10, a);
  expect(alone.paidMs(1)).toBe(10);
  const quiet = dryRunCredits(alone);
  quiet.add(1, 10, a);
  expect(quiet.paidMs(1)).toBe(10);
  routers[0]!.add(1, 10, a);
  await routers[0]!.stop();
  routers[0]!.add(1, -5, b);
  time.advance(1_000);
  expect(frames).toBe(0);
});

test("a note has what was written, in whole milliseconds, and later versions may add to it", () => {
  const parts = [
    { key: 0xffff_ffff, paidMs: 1_234 },
    { key: 0, paidMs: -56 },
  ];
  expect(readCreditNote(writeCreditNote(parts))).toEqual(parts);
  expect(readCreditNote(Uint8Array.of(...writeCreditNote(parts), 1, 2, 3))).toEqual(parts);
  expect(readCreditNote(writeCreditNote([]))).toEqual([]);
});

test("a note of one credit too many, of one that is too large, or of another version is refused", () => {
  const credits = (count: number) => Array.from({ length: count }, (_, key) => ({ key, paidMs: 1 }));
  expect(readCreditNote(writeCreditNote(credits(maxReportedCredits)))).toHaveLength(maxReportedCredits);
  expect(() => readCreditNote(writeCreditNote(credits(maxReportedCredits + 1)))).toThrow(RangeError);
  expect(readCreditNote(writeCreditNote([{ key: 1, paidMs: -maxCreditMs }]))).toHaveLength(1);
  expect(() => readCreditNote(writeCreditNote([{ key: 1, paidMs: maxCreditMs + 1 }]))).toThrow(RangeError);
  expect(() => readCreditNote(Uint8Array.of(2, 0))).toThrow(RangeError);
});
