import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { noFleetUsage, noPeerLoad } from "../../src/admission/index.ts";
import { createRig, full, type Rig } from "./rig.ts";

const job = { className: "batch", promptTokens: 10_000, expectedOutputTokens: 300 } as const;
const chat = { className: "interactive", promptTokens: 200, expectedOutputTokens: 250 } as const;

/** Sends both kinds of work for some seconds, at an engine that is always done with everything. */
function mix(rig: Rig, { chats, jobs, seconds = 30 }: { chats: number; jobs: number; seconds?: number }): void {
  for (let second = 0; second < seconds; second++) {
    rig.time.advance(1_000);
    for (let count = 0; count < chats; count++) rig.send("chat", chat);
    for (let count = 0; count < jobs; count++) rig.send("job", job);
    // Something always runs, so that no engine is free for all.
    for (const { load } of rig.targets) {
      Object.assign(load, { pendingPrefillTokens: 0, inFlight: 1, yieldingInFlight: jobs > 0 ? 1 : 0 });
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

// One request of class `batch` kept half of two engines from chats for six minutes: the partition lasted until the memory
// of its work had decayed, whether or not anything of it still ran.
test("chats may use every engine again as soon as the last request that yields has ended", () => {
  const rig = createRig({ targets: 2 });
  for (let count = 0; count < 24; count++) rig.send("chat", chat);
  const { target } = rig.send("job", { ...job, promptTokens: 20, expectedOutputTokens: 1 });
  for (const { load } of rig.targets) load.pendingPrefillTokens = 0;
  expect(rig.send("chat", chat).open).toHaveLength(1);
  rig.targets[target]!.load.inFlight -= 1;
  rig.targets[target]!.load.yieldingInFlight -= 1;
  expect(rig.send("chat", chat).open).toHaveLength(2);
});

test("the partition lasts while a request that yields is in flight or queued, at any router", () => {
  const others = { ...noPeerLoad, inFlight: new Float64Array(4), yieldingInFlight: new Float64Array(4) };
  let neediest = Number.POSITIVE_INFINITY;
  const rig = createRig({ targets: 4, others, fleet: { ...noFleetUsage, neediest: () => neediest } });
  const open = (): number => {
    for (const { load } of rig.targets) load.pendingPrefillTokens = 0;
    return rig.send("chat", chat).open.length;
  };
  mix(rig, { chats: 40, jobs: 4 });
  expect(open()).toBeLessThan(4);
  for (const { load } of rig.targets) load.yieldingInFlight = 0;
  expect(open()).toBe(4);
  others.yieldingInFlight[3] = 1;
  expect(open()).toBeLessThan(4);
  others.yieldingInFlight[3] = 0;
  neediest = 0;
  expect(open()).toBeLessThan(4);
  neediest = Number.POSITIVE_INFINITY;
  expect(open()).toBe(4);
  rig.fill(16_384);
  const { ticket } = rig.send("job", job);
  expect(ticket?.isWaiting).toBe(true);
  for (const { load } of rig.targets) load.pendingPrefillTokens = 8_191;
  expect(rig.send("chat", chat).open.length).toBeLessThan(4);
  ticket?.leave();
  expect(open()).toBe(4);
});

test("work that yields may use every engine again half a minute after the last other request arrived and ended", () => {
  const rig = createRig({ targets: 4 });
  mix(rig, { chats: 40, jobs: 4 });
  const lastChat = rig.send("chat", chat);
  rig.time.advance(30_000);
  expect(rig.send("job", job).open.length).toBeLessThan(4);
  rig.time.advance(1);
  expect(lastChat.target).toBeGreaterThanOrEqual(0);
  expect(rig.send("job", job).open.length).toBeLessThan(4);
  for (const { load } of rig.targets) Object.assign(load, { pendingPrefillTokens: 0, yieldingInFlight: load.inFlight });
  expect(rig.send("job", job).open).toHaveLength(4);
});

test("chats that pile up at the engines left to them use a partition that is larger than its work, above 3 times the mean inside + 16", () => {
  const rig = createRig({ targets: 2 });
  for (let count = 0; count < 2; count++) rig.send("chat", chat);
  const job = rig.send("job", { className: "batch", promptTokens: 20, expectedOutputTokens: 400 });
  const outside = rig.targets[1 - job.target]!;
  const inside = rig.targets[job.target]!;
  const open = (): number => {
    for (const { load } of rig.targets) load.pendingPrefillTokens = 0;
    return rig.send("chat", chat).open.length;
  };
  Object.assign(inside.load, { inFlight: 3, yieldingInFlight: 1 });
  outside.load.inFlight = 3 * 3 + 16 - 1;
  expect(open()).toBe(1);
  outside.load.inFlight = 3 * 3 + 16;
  expect(open()).toBe(2);
});

test("engines that only prefill are no members, so that work that yields is not confined to them", () => {
  const rig = createRig({ targets: 3 });
  mix(rig, { chats: 40, jobs: 1 });
  rig.targets[rig.send("job", job).open[0]!]!.engine.role = "prefill";
  const { open } = rig.send("job", job);
  expect(open).toHaveLength(1);
  expect(rig.targets[open[0]!]!.engine.role).toBe("both");
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
    for (const { load } of rig.targets)
      Object.assign(load, { pendingPrefillTokens: 0, inFlight: 1, yieldingInFlight: 1 });
  }
  expect(rig.send("job", job).open.length).toBeGreaterThan(3);
});

test("a ticket names each engine that was left out, and whether for the partition or because it is saturated", () => {
  const rig = createRig({ targets: 4 });
  mix(rig, { chats: 40, jobs: 4 });
  const partition = rig.send("job", job).open;
  const outside = rig.targets.filter(({ index }) => !partition.includes(index));
  outside[0]!.load.pendingPrefillTokens = full;
  const expected = [
    [outside[0]!.key, "saturated"],
    ...partition.map((index) => [`engine-${index}`, "class_partition"]),
  ];
  const explained = rig.admission.explain(
    { className: "interactive", deadlineMs: undefined, onlyEngine: undefined },
    rig.targets,
  );
  const { ticket } = rig.send("chat", chat);
  expect(new Map(ticket?.excluded)).toEqual(new Map(expected as [string, never][]));
  expect(explained).toEqual({ isQueued: false, excluded: ticket?.excluded });
  expect(createRig().send("chat", chat).ticket?.excluded.size).toBe(0);
});

test("an explanation says whether a request would wait: for an engine, or behind another one", () => {
  const rig = createRig();
  const asked = { className: "interactive", deadlineMs: undefined, onlyEngine: undefined };
  const isQueued = (className = "interactive"): boolean =>
    rig.admission.explain({ ...asked, className }, rig.targets).isQueued;
  expect(isQueued()).toBe(false);
  rig.fill();
  expect(isQueued()).toBe(true);
  rig.send("chat", { ...chat, onlyEngine: "engine-0" });
  rig.targets[1]!.load.pendingPrefillTokens = 0;
  expect([isQueued(), isQueued("batch")]).toEqual([true, true]);
  rig.unload();
  expect(isQueued()).toBe(false);
});
