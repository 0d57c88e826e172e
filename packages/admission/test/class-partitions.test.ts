import { createSeededRandom } from "@espalier/common";
import { expect, test } from "vitest";
import { createRig, full, type Rig } from "./rig.ts";

const job = { className: "batch", promptTokens: 10_000, expectedOutputTokens: 300 } as const;
const chat = { className: "interactive", promptTokens: 200, expectedOutputTokens: 250 } as const;

/** Sends both kinds of work for some seconds, at an engine that is always done with everything. */
function mix(rig: Rig, { chats, jobs, seconds = 30 }: { chats: number; jobs: number; seconds?: number }): void {
  for (let second = 0; second < seconds; second++) {
    rig.time.advance(1_000);
    for (let count = 0; count < chats; count++) rig.send("chat", chat);
    for (let count = 0; count < jobs; count++) rig.send("job", job);
    for (const { load } of rig.targets) {
      load.pendingPrefillTokens = 0;
      // Something always runs, so that no engine is free for all.
      load.inFlight = 1;
    }
  }
}

test("work that yields keeps to some engines, and the rest of the work to the others", () => {
  const rig = createRig({ targets: 8 });
  mix(rig, { chats: 40, jobs: 4 });
  const partition = rig.send("job", job).open;
  const others = rig.send("chat", chat).open;
  expect(partition.length + others.length).toBe(8);
  expect(partition.filter((index) => others.includes(index))).toEqual([]);
  // 40 x (200 + 5 x 250) tokens of chats beside 4 x (10,000 + 5 x 300) of jobs: 3.5 of 8 engines.
  expect([3, 4]).toContain(partition.length);
});

test.each([
  [{ chats: 100, jobs: 1 }, 0.6],
  [{ chats: 5, jobs: 4 }, 6.9],
  [{ chats: 40, jobs: 2 }, 2.3],
  [{ chats: 20, jobs: 4 }, 4.9],
])("a partition has as many engines as the work asks for, nearly, but never all or none: %o", (work, wanted) => {
  const rig = createRig({ targets: 8 });
  mix(rig, work);
  const { length } = rig.send("job", job).open;
  expect(Math.abs(length - wanted)).toBeLessThanOrEqual(0.75);
  expect(length).toBeGreaterThan(0);
});

test("all routers have the same partition, whatever the order in which they know the engines", () => {
  const one = createRig({ targets: 8 });
  const other = createRig({ targets: 8 });
  const random = createSeededRandom(1);
  other.targets.sort(() => random.float() - 0.5);
  for (const rig of [one, other]) mix(rig, { chats: 40, jobs: 3 });
  const partitionOf = (rig: Rig) => [...rig.send("job", job).open].sort((a, b) => a - b);
  expect(partitionOf(other)).toEqual(partitionOf(one));
});

test("with more work that yields the partition grows, and keeps the engines that it had", () => {
  const rig = createRig({ targets: 8 });
  mix(rig, { chats: 40, jobs: 2 });
  const before = rig.send("job", job).open;
  mix(rig, { chats: 40, jobs: 8, seconds: 120 });
  const after = rig.send("job", job).open;
  expect(after.length).toBeGreaterThan(before.length);
  expect(before.filter((index) => !after.includes(index))).toEqual([]);
  mix(rig, { chats: 40, jobs: 2, seconds: 240 });
  const again = rig.send("job", job).open;
  expect(again.length).toBeLessThan(after.length);
  expect(again.filter((index) => !after.includes(index))).toEqual([]);
});

test("neighbours in name, which often stand in one machine, are none in the order of the partition", () => {
  const rig = createRig({ targets: 8 });
  mix(rig, { chats: 40, jobs: 4 });
  const partition = [...rig.send("job", job).open].sort((a, b) => a - b);
  expect(partition).not.toEqual(partition.map((_, at) => at));
});

test("jobs wait for their partition while other engines have only little to do", () => {
  const rig = createRig({ targets: 8 });
  mix(rig, { chats: 40, jobs: 4 });
  for (const index of rig.send("job", job).open) rig.targets[index]!.load.pendingPrefillTokens = 16_384;
  const waiting = rig.send("job", job);
  expect([waiting.target, waiting.refusal]).toEqual([-1, undefined]);
  expect(rig.send("chat", chat).target).toBeGreaterThanOrEqual(0);
});

test("but an engine without any request is there for all", () => {
  const rig = createRig({ targets: 8 });
  mix(rig, { chats: 40, jobs: 4 });
  const chats = rig.send("chat", chat).open;
  rig.targets[chats[0]!]!.load.inFlight = 0;
  expect(rig.send("job", job).open).toContain(chats[0]);
});

test("with the other engines busy people's requests use the partition as well, before they wait", () => {
  const rig = createRig({ targets: 8 });
  mix(rig, { chats: 40, jobs: 4 });
  const partition = rig.send("job", job).open;
  const chats = rig.send("chat", chat).open;
  for (const index of chats) rig.targets[index]!.load.pendingPrefillTokens = 8_192;
  expect(rig.send("chat", chat).open).toEqual(expect.arrayContaining([...partition, ...chats]));
  for (const index of [...partition, ...chats]) rig.targets[index]!.load.pendingPrefillTokens = full;
  expect(rig.send("chat", chat).target).toBe(-1);
});

test("the partition ends when one kind of work has gone", () => {
  const rig = createRig({ targets: 4 });
  mix(rig, { chats: 40, jobs: 4 });
  mix(rig, { chats: 0, jobs: 4, seconds: 600 });
  expect(rig.send("job", job).open).toHaveLength(4);
  mix(rig, { chats: 40, jobs: 4 });
  mix(rig, { chats: 40, jobs: 0, seconds: 600 });
  expect(rig.send("chat", chat).open).toHaveLength(4);
});

test("an engine that cannot be used is in no partition, and of one usable engine none is taken away", () => {
  const rig = createRig({ targets: 4 });
  mix(rig, { chats: 40, jobs: 4 });
  const partition = rig.send("job", job).open;
  for (const index of partition) rig.targets[index]!.usable = false;
  const [next] = rig.send("job", job).open;
  expect(next).toBeDefined();
  expect(partition).not.toContain(next);
  for (const target of rig.targets) target.usable = target.index === next;
  for (const { load } of rig.targets) load.pendingPrefillTokens = 0;
  const only = rig.send("chat", chat);
  expect(only.target).toBe(next);
});

test("classes that do not yield know no partition", () => {
  const rig = createRig({ targets: 4 });
  for (let count = 0; count < 100; count++) {
    rig.time.advance(100);
    rig.send("chat", chat);
    rig.send("usual", { ...job, className: "default" });
    for (const { load } of rig.targets) load.pendingPrefillTokens = 0;
  }
  expect(rig.send("usual", { ...job, className: "default" }).open).toHaveLength(4);
});

test("an answer's bound that nobody means does not count for more than a usual answer", () => {
  const rig = createRig({ targets: 8 });
  for (let second = 0; second < 30; second++) {
    rig.time.advance(1_000);
    for (let count = 0; count < 10; count++) rig.send("chat", { ...chat, expectedOutputTokens: 100_000 });
    for (let count = 0; count < 4; count++) rig.send("job", job);
    for (const { load } of rig.targets) Object.assign(load, { pendingPrefillTokens: 0, inFlight: 1 });
  }
  expect(rig.send("job", job).open.length).toBeGreaterThan(3);
});
