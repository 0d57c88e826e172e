import { asRouterId, silentMeter } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  maxNotedBackends,
  maxSpenders,
  OverflowSpend,
  publishSpendMs,
  readSpendNote,
  writeSpendNote,
} from "../src/overflow/overflow-spend.ts";

const hourMs = 3_600_000;

interface Rig {
  readonly time: VirtualTime;
  readonly spend: OverflowSpend;
  readonly posted: Uint8Array[];
  /** How the notes of this router were posted. */
  readonly channel: { isFull: boolean; options: unknown };
  /** Another router tells what it spent. */
  hear(router: string, bytes: Uint8Array, epoch?: number): void;
}

async function createRig(time = createVirtualTime()): Promise<Rig> {
  const posted: Uint8Array[] = [];
  let listener: (note: Note) => void = () => {};
  const state: Rig["channel"] = { isFull: false, options: undefined };
  const channel: NoteChannel = {
    post(_, bytes, options) {
      if (state.isFull) return false;
      state.options = options;
      return posted.push(bytes) > 0;
    },
    onNote(heard) {
      listener = heard;
      return () => {};
    },
  };
  const spend = new OverflowSpend({ channel, clock: time.clock, scheduler: time.scheduler, meter: silentMeter });
  await spend.start();
  return {
    ...{ time, spend, posted, channel: state },
    hear: (router, bytes, epoch = 1) =>
      listener({ origin: { router: asRouterId(router), epoch }, key: "overflow", bytes, ageMs: 0 }),
  };
}

const noteAt = (time: VirtualTime, hour: number, day = hour): Uint8Array => {
  const wallMs = time.clock.wallMs();
  return writeSpendNote([
    { backend: "b", hourNumber: Math.floor(wallMs / hourMs), hour, dayNumber: Math.floor(wallMs / (24 * hourMs)), day },
  ]);
};

test("a reservation counts at once and becomes the cost; hours begin anew, days go on", async () => {
  const { time, spend } = await createRig();
  const reserved = spend.reserve("b", 10);
  expect(spend.of("b")).toEqual({ hour: 10, day: 10 });
  reserved.settle(4);
  expect(spend.of("b")).toEqual({ hour: 4, day: 4 });
  const late = spend.reserve("b", 6);
  await time.advance(hourMs - (time.clock.wallMs() % hourMs));
  const { hour, day } = spend.of("b");
  expect([hour, day === 10 || day === 0]).toEqual([0, true]);
  late.settle(1);
  expect(spend.of("b").hour).toBe(0);
  expect(spend.of("other")).toEqual({ hour: 0, day: 0 });
});

test("what others spent adds up, also what a router spent before it started again", async () => {
  const { time, spend, hear } = await createRig();
  spend.reserve("b", 1);
  hear("one", noteAt(time, 2));
  hear("one", noteAt(time, 3));
  hear("one", noteAt(time, 5), 2);
  hear("two", noteAt(time, 7));
  expect(spend.of("b").hour).toBe(1 + 3 + 5 + 7);
  await time.advance(hourMs);
  expect(spend.of("b").hour).toBe(0);
});

test("changes are told four times a second at most, and nothing while nothing changes", async () => {
  const { time, spend, posted } = await createRig();
  for (let each = 0; each < 10; each++) spend.reserve("b", 1).settle(1);
  await time.advance(publishSpendMs);
  expect(posted).toHaveLength(1);
  expect(readSpendNote(posted[0]!)).toMatchObject([{ backend: "b", hour: 10 }]);
  await time.advance(10 * publishSpendMs);
  expect(posted).toHaveLength(1);
});

test("one run of a router too many: the one heard first no longer counts", async () => {
  const { time, spend, hear } = await createRig();
  for (let at = 0; at <= maxSpenders; at++) hear(`router-${at}`, noteAt(time, 1));
  expect(spend.of("b").hour).toBe(maxSpenders);
  hear("router-7", noteAt(time, 3));
  expect(spend.of("b").hour).toBe(maxSpenders + 2);
});

test.each([
  ["too many backends", writeSpendNote(Array.from({ length: maxNotedBackends + 1 }, () => part(1)))],
  ["a negative amount", writeSpendNote([part(-1)])],
  ["an amount that is no number", writeSpendNote([part(Number.NaN)])],
  ["another version", Uint8Array.of(9, 0)],
  ["nothing", new Uint8Array()],
])("a note with %s changes nothing", async (_, bytes) => {
  const { spend, hear } = await createRig();
  hear("liar", bytes);
  expect(spend.of("b")).toEqual({ hour: 0, day: 0 });
});

function part(hour: number) {
  return { backend: "b", hourNumber: 1, hour, dayNumber: 1, day: 0 };
}

// What could not be posted was taken for published: no other router ever heard of it, and each spent the budget anew.
test("what was spent is posted again until it is taken, and lasts", async () => {
  const { time, spend, posted, channel } = await createRig();
  channel.isFull = true;
  spend.reserve("b", 3);
  await time.advance(4 * publishSpendMs);
  channel.isFull = false;
  await time.advance(publishSpendMs);
  expect(posted).toHaveLength(1);
  expect(readSpendNote(posted[0]!)).toMatchObject([{ backend: "b", hour: 3 }]);
  expect(channel.options).toEqual({ isLasting: true });
  await time.advance(4 * publishSpendMs);
  expect(posted).toHaveLength(1);
});
