import { createSeededRandom } from "@espalier/core";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { GroupOrder, Place } from "../../src/processes/process-group.ts";
import { ProcessGroup, type ProcessObserver } from "../../src/processes/process-group.ts";

/** A process that does nothing by itself. */
interface FakeProcess {
  readonly orders: GroupOrder[];
  readonly observer: ProcessObserver;
  isGone: boolean;
  /** Asks for its place. */
  hello(): Place;
  /** Takes its place and serves. */
  serve(): void;
  end(code: number | null, signal?: string): void;
}

function setUp(count: number) {
  const { clock, scheduler, advance } = createVirtualTime();
  const logger = createRecordingLogger();
  const processes: FakeProcess[] = [];
  const group = new ProcessGroup({
    ...{ count, meshSecret: "secret", clock, scheduler, logger, random: createSeededRandom(1) },
    launch(observer) {
      const number = processes.length + 1;
      const fake: FakeProcess = {
        orders: [],
        observer,
        isGone: false,
        hello() {
          observer.said({ type: "hello" });
          const order = fake.orders.at(-1);
          if (order?.type !== "place") throw new Error("it was given no place");
          return order.place;
        },
        serve() {
          const { index } = fake.hello();
          const adminUrl = `http://a:${9090 + index}`;
          observer.said({
            type: "listening",
            url: "http://a:8080",
            adminUrl,
            rolloutsUrl: null,
            meshAddress: `a:${number}`,
            picker: null,
          });
        },
        end(code, signal) {
          if (fake.isGone) return;
          fake.isGone = true;
          observer.ended(code, signal ?? null);
        },
      };
      processes.push(fake);
      return {
        pid: 100 + number,
        send: (order) => void fake.orders.push(order),
        kill: () => scheduler.after(1, () => fake.end(null, "SIGKILL")),
      };
    },
  });
  return { group, processes, advance, lines: logger.lines, last: () => processes.at(-1)! };
}

/** Starts a group to where all serve. */
async function serving(count: number) {
  const rig = setUp(count);
  const started = rig.group.start();
  rig.processes[0]!.serve();
  await settle();
  for (const process of rig.processes.slice(1)) process.serve();
  await started;
  for (const process of rig.processes) process.orders.length = 0;
  return rig;
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
}

test("the first process starts alone, the others together, each with those that serve as its seeds", async () => {
  const { group, processes } = setUp(3);
  const started = group.start();
  await settle();
  expect(processes).toHaveLength(1);
  const { index, seeds, isServing } = processes[0]!.hello();
  expect([index, seeds, isServing]).toEqual([0, [], false]);
  processes[0]!.serve();
  await settle();
  expect(processes).toHaveLength(3);
  expect(processes[1]!.hello()).toEqual({ index: 1, seeds: ["a:1"], meshSecret: "secret", isServing: false });
  processes[1]!.serve();
  expect(processes[2]!.hello().seeds).toEqual(["a:1", "a:2"]);
  processes[2]!.serve();
  expect((await started).map(({ adminUrl }) => adminUrl)).toEqual(["http://a:9090", "http://a:9091", "http://a:9092"]);
});

test("all are told when all have been ready, and a restarted one is told so with its place", async () => {
  const { processes, advance, last } = await serving(2);
  processes[0]!.observer.said({ type: "ready" });
  expect(processes.map(({ orders }) => orders)).toEqual([[], []]);
  processes[1]!.observer.said({ type: "ready" });
  expect(processes.map(({ orders }) => orders)).toEqual([[{ type: "serving" }], [{ type: "serving" }]]);
  processes[0]!.end(null, "SIGKILL");
  advance(200);
  expect(last().hello()).toEqual({ index: 0, seeds: ["a:2"], meshSecret: "secret", isServing: true });
  last().serve();
  last().observer.said({ type: "ready" });
  expect(processes[1]!.orders).toHaveLength(1);
});

test.each([0, 1])("when process %i cannot start, the others are ended and it is said", async (failing) => {
  const { group, processes, advance } = setUp(2);
  const started = group.start().catch(String);
  await settle();
  if (failing === 1) processes[0]!.serve();
  await settle();
  processes[failing]!.end(1);
  await settle();
  advance(1);
  expect(await started).toBe(`Error: process ${failing + 1} of 2 ended with code 1 before it served`);
  expect(processes).toHaveLength(failing + 1);
  expect(processes.every(({ isGone }) => isGone)).toBe(true);
});

test("one that ends is started again, later each time it does not stay, and soon once it had stayed", async () => {
  const { processes, advance, lines, last } = await serving(2);
  const delays: number[] = [];
  const dieAgain = (): void => {
    const before = processes.length;
    last().end(1);
    let waitedMs = 0;
    for (; processes.length === before; waitedMs++) advance(1);
    delays.push(waitedMs);
    last().serve();
  };
  for (let time = 0; time < 12; time++) dieAgain();
  expect(delays[0]).toBeLessThanOrEqual(200);
  expect(delays[3]).toBeGreaterThanOrEqual(800);
  for (const delay of delays) expect(delay).toBeLessThanOrEqual(30_000);
  expect(delays[11]).toBeGreaterThanOrEqual(15_000);
  advance(60_000);
  dieAgain();
  expect(delays[12]).toBeLessThanOrEqual(200);
  expect(lines[0]).toMatchObject({ level: "error", fields: { process: 2, pid: 102, code: 1, signal: null } });
  expect(processes[0]!.isGone).toBe(false);
});

test("what one is asked to reload, the others reload too, and a signal has all do so", async () => {
  const { group, processes } = await serving(3);
  processes[1]!.observer.said({ type: "reload" });
  const byAdmin = { type: "reload", trigger: "admin" };
  expect(processes.map(({ orders }) => orders)).toEqual([[byAdmin], [], [byAdmin]]);
  group.reload();
  for (const { orders } of processes) expect(orders.at(-1)).toEqual({ type: "reload", trigger: "signal" });
});

test("a stop goes to all, and so does the second one; it has ended when all have", async () => {
  const { group, processes } = await serving(2);
  let hasEnded = false;
  void group.ended.then(() => {
    hasEnded = true;
  });
  group.stop(true);
  group.stop(false);
  const orders = [
    { type: "stop", isDelayed: true },
    { type: "stop", isDelayed: false },
  ];
  expect(processes.map((each) => each.orders)).toEqual([orders, orders]);
  processes[0]!.end(0);
  await settle();
  expect(hasEnded).toBe(false);
  processes[1]!.end(0);
  await settle();
  expect(hasEnded).toBe(true);
});

test("one that waits to be started again, or starts, when the group is stopped does not come back", async () => {
  const { group, processes, advance, last } = await serving(3);
  processes[1]!.end(1);
  processes[2]!.end(1);
  advance(200);
  expect(processes).toHaveLength(5);
  last().end(1);
  group.stop(true);
  processes[0]!.end(0);
  advance(60_000);
  await group.ended;
  expect(processes).toHaveLength(5);
  expect(processes.every(({ isGone }) => isGone)).toBe(true);
});

test("one that begins to serve after the group was stopped is ended", async () => {
  const { group, processes, advance, last } = await serving(2);
  processes[1]!.end(1);
  advance(200);
  group.stop(true);
  last().serve();
  processes[0]!.end(0);
  advance(2);
  await group.ended;
  expect(last().isGone).toBe(true);
});
