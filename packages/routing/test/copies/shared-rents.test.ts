import { asRouterId, asTargetIndex, silentMeter } from "@espalier/core";
import { NotePlane } from "@espalier/shared-tree";
import { createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { beforeEach, expect, test } from "vitest";
import {
  createSharedRents,
  dryRunRents,
  maxRentMs,
  maxReportedRents,
  publishRentsMs,
  readRentNote,
  type SharedRents,
  writeRentNote,
} from "../../src/copy-rents.ts";

const a = asTargetIndex(0);
const b = asTargetIndex(1);
let time = createVirtualTime();
let planes: readonly NotePlane[];
let meters: readonly ReturnType<typeof createSeriesMeter>[];
let routers: readonly SharedRents[];
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
  routers = planes.map((channel, number) => createSharedRents({ channel, clock, scheduler, meter: meters[number]! }));
  await Promise.all(routers.map((router) => router.start()));
});

test("rents are told together, within 25 ms", () => {
  const [one, two] = routers;
  for (let prompt = 0; prompt < 10; prompt++) one!.add(7, 30, a);
  expect(two!.paidMs(7)).toBe(0);
  time.advance(publishRentsMs);
  expect(two!.paidMs(7)).toBeGreaterThan(299);
  expect(frames).toBe(1);
  time.advance(10 * publishRentsMs);
  expect(frames).toBe(1);
});

test("a copy is told at once, so that the other router does not make it again", () => {
  const [one, two] = routers;
  one!.add(7, 500, a);
  time.advance(publishRentsMs);
  two!.add(7, -400, b);
  expect(one!.paidMs(7)).toBeLessThan(100);
  expect(one!.paidMs(7)).toBeGreaterThan(98);
  expect(frames).toBe(2);
});

test("bytes that are no such note are counted and change nothing; the next note is heard", () => {
  const [one] = routers;
  planes[1]!.post("rents", Uint8Array.of(9, 9, 9));
  planes[1]!.post("others", Uint8Array.of(9, 9, 9));
  expect(meters[0]!.value("espalier_copy_rents_received_total", "invalid")).toBe(1);
  planes[1]!.post("rents", writeRentNote([{ key: 3, paidMs: 12 }]));
  expect(one!.paidMs(3)).toBe(12);
  expect(meters[0]!.value("espalier_copy_rents_received_total", "taken")).toBe(1);
});

test("a router that shares nothing keeps its own; one that only asks pays nothing; a stopped one tells nothing", async () => {
  const { clock, scheduler } = time;
  const alone = createSharedRents({ channel: undefined, clock, scheduler, meter: silentMeter });
  await alone.start();
  alone.add(1, 10, a);
  expect(alone.paidMs(1)).toBe(10);
  const quiet = dryRunRents(alone);
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
  expect(readRentNote(writeRentNote(parts))).toEqual(parts);
  expect(readRentNote(Uint8Array.of(...writeRentNote(parts), 1, 2, 3))).toEqual(parts);
  expect(readRentNote(writeRentNote([]))).toEqual([]);
});

test("a note of one rent too many, of one that is too large, or of another version is refused", () => {
  const rents = (count: number) => Array.from({ length: count }, (_, key) => ({ key, paidMs: 1 }));
  expect(readRentNote(writeRentNote(rents(maxReportedRents)))).toHaveLength(maxReportedRents);
  expect(() => readRentNote(writeRentNote(rents(maxReportedRents + 1)))).toThrow(RangeError);
  expect(readRentNote(writeRentNote([{ key: 1, paidMs: -maxRentMs }]))).toHaveLength(1);
  expect(() => readRentNote(writeRentNote([{ key: 1, paidMs: maxRentMs + 1 }]))).toThrow(RangeError);
  expect(() => readRentNote(Uint8Array.of(2, 0))).toThrow(RangeError);
});
