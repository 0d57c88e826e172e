import { type Connection, createSeededRandom, systemClock, systemScheduler, type Transport } from "@espalier/core";
import { createMemoryNetwork, createVirtualTime, type MemoryNetwork } from "@espalier/testing";
import { expect, test } from "vitest";
import { describeTransport, type Heard, listen, suiteFrameBytes } from "./transport-suite.ts";

describeTransport("the network in memory", () => {
  const network = createMemoryNetwork({
    clock: systemClock,
    scheduler: systemScheduler,
    random: createSeededRandom(1),
    maxFrameBytes: suiteFrameBytes,
  });
  network.setSpeed({ bytesPerMs: suiteFrameBytes });
  let made = 0;
  return {
    make: () => network.transport(`host-${++made}:1`),
    deadAddress: async () => "nobody:1",
  };
});

interface Rig {
  readonly network: MemoryNetwork;
  readonly time: ReturnType<typeof createVirtualTime>;
  readonly a: Transport;
  readonly b: Transport;
}

async function makeRig(seed = 1): Promise<Rig> {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const network = createMemoryNetwork({ clock, scheduler, random: createSeededRandom(seed) });
  const a = network.transport("a:1");
  const b = network.transport("b:1");
  for (const transport of [a, b]) {
    transport.onConnection(listen);
    await transport.start();
  }
  return { network, time, a, b };
}

interface Ends {
  readonly atA: Heard;
  readonly atB: Heard;
  readonly fromA: Connection;
  readonly fromB: Connection;
}

/** Dials b from a; everything before the answer takes the round trip of the network. */
function open({ a, b, time }: Rig, roundTripMs = 0): Ends {
  const atA = listen();
  const atB = listen();
  const both: { fromA?: Connection; fromB?: Connection } = {};
  b.onConnection((connection) => {
    both.fromB = connection;
    connection.trust();
    return atB;
  });
  a.dial("b:1", {
    ...atA,
    drained: () => atA.drained(),
    opened(connection) {
      both.fromA = connection;
      connection.trust();
    },
  });
  time.advance(roundTripMs);
  const { fromA, fromB } = both;
  if (!fromA || !fromB) throw new Error("the dial did not succeed");
  return { atA, atB, fromA, fromB };
}

const bytesOf = ({ frames }: Heard): number[] => frames.map(([first]) => first!);

test("a dial takes a round trip, a frame one way", async () => {
  const rig = await makeRig();
  rig.network.setSpeed({ delayMs: 7 });
  const { fromA, atB } = open(rig, 14);
  fromA.send(Uint8Array.of(1));
  rig.time.advance(6.9);
  expect(bytesOf(atB)).toEqual([]);
  rig.time.advance(0.2);
  expect(bytesOf(atB)).toEqual([1]);
});

test("jitter keeps the order and stays in its range", async () => {
  const rig = await makeRig(7);
  const { fromA, atB } = open(rig);
  rig.network.setSpeed({ delayMs: 5, jitterMs: 20 }, { from: "a:1", to: "b:1" });
  const arrivedMs: number[] = [];
  atB.frame = (frame) => {
    atB.frames.push(frame);
    arrivedMs.push(rig.time.clock.nowMs() - frame[0]!);
  };
  for (let index = 0; index < 200; index++) {
    fromA.send(Uint8Array.of(index));
    rig.time.advance(1);
  }
  rig.time.advance(30);
  expect(bytesOf(atB)).toEqual(Array.from({ length: 200 }, (_, index) => index));
  expect(Math.min(...arrivedMs)).toBeGreaterThanOrEqual(5);
  expect(Math.max(...arrivedMs)).toBeLessThanOrEqual(25.001);
  expect(Math.max(...arrivedMs)).toBeGreaterThan(15);
});

test("a direction has the speed it was given, and what waits is with the sender", async () => {
  const rig = await makeRig();
  const { fromA, atB, atA } = open(rig);
  rig.network.setSpeed({ bytesPerMs: 100 }, { from: "a:1", to: "b:1" });
  for (let index = 0; index < 100; index++) fromA.send(new Uint8Array(1_000));
  expect(fromA.bufferedBytes).toBe(100_000);
  rig.time.advance(100);
  expect([atB.frames.length, fromA.bufferedBytes]).toEqual([10, 90_000]);
  expect(atA.drains).toBe(0);
  rig.time.advance(300);
  expect(atA.drains).toBe(1);
  rig.time.advance(600);
  expect([atB.frames.length, fromA.bufferedBytes, atA.drains]).toEqual([100, 0, 1]);
});

test("what a cut holds back arrives in order after it, also what was under way", async () => {
  const rig = await makeRig();
  const { fromA, fromB, atA, atB } = open(rig);
  rig.network.setSpeed({ delayMs: 5 });
  fromA.send(Uint8Array.of(1));
  rig.time.advance(1);
  rig.network.cut({ from: "a:1", to: "b:1" });
  fromA.send(Uint8Array.of(2));
  fromB.send(Uint8Array.of(3));
  rig.time.advance(1_000);
  expect(bytesOf(atB)).toEqual([]);
  expect(bytesOf(atA)).toEqual([3]);
  expect(fromA.bufferedBytes).toBe(1);
  rig.network.mend({ from: "a:1", to: "b:1" });
  rig.time.advance(5);
  expect(bytesOf(atB)).toEqual([1, 2]);
});

test.each([
  ["a cut to it", (network: MemoryNetwork) => network.cut({ from: "a:1", to: "b:1" })],
  ["a cut from it", (network: MemoryNetwork) => network.cut({ from: "b:1", to: "a:1" })],
  ["a partition", (network: MemoryNetwork) => network.partition([["a:1"], ["b:1"]])],
  ["a stopped process", (network: MemoryNetwork) => network.freeze("b:1")],
])("a dial times out: %s", async (_, fault) => {
  const { network, time, a, b } = await makeRig();
  fault(network);
  const heard = listen();
  a.dial("b:1", { ...heard, opened: () => expect.unreachable() });
  time.advance(999);
  expect(heard.ends).toEqual([]);
  time.advance(1);
  expect(heard.ends).toMatchObject([{ kind: "timeout" }]);
  network.heal();
  open({ network, time, a, b });
});

test("an address in no group of a partition reaches all", async () => {
  const rig = await makeRig();
  rig.network.partition([["a:1"], ["c:1"]]);
  expect(open(rig).atB.ends).toEqual([]);
});

test("a process that is gone: the others hear a reset, it hears nothing, and its address is free", async () => {
  const rig = await makeRig();
  const { fromB, atA, atB } = open(rig);
  rig.network.kill("b:1");
  fromB.send(Uint8Array.of(1));
  rig.time.advance(10);
  expect(atA.ends).toMatchObject([{ kind: "reset" }]);
  expect([atA.frames, atB.ends]).toEqual([[], []]);
  const refused = listen();
  rig.a.dial("b:1", { ...refused, opened: () => expect.unreachable() });
  rig.time.advance(1);
  expect(refused.ends).toMatchObject([{ kind: "refused" }]);
  const again = rig.network.transport("b:1");
  again.onConnection(listen);
  await again.start();
  open({ ...rig, b: again });
});

test("a process that is gone behind a cut is heard of when the cut is mended", async () => {
  const rig = await makeRig();
  const { atA } = open(rig);
  rig.network.partition([["a:1"], ["b:1"]]);
  rig.network.kill("b:1");
  rig.time.advance(60_000);
  expect(atA.ends).toEqual([]);
  rig.network.heal();
  rig.time.advance(1);
  expect(atA.ends).toMatchObject([{ kind: "reset" }]);
});

test("a stopped process goes on where it was", async () => {
  const rig = await makeRig();
  const { fromA, atA, atB } = open(rig);
  rig.network.freeze("b:1");
  fromA.send(Uint8Array.of(1));
  rig.time.advance(5_000);
  expect(atB.frames).toEqual([]);
  rig.network.thaw("b:1");
  rig.time.advance(1);
  expect([bytesOf(atB), atA.ends]).toEqual([[1], []]);
});

test("a reset breaks the connections of two addresses; a refusal only new ones", async () => {
  const rig = await makeRig();
  const { fromA, atA, atB } = open(rig);
  rig.network.refuse("b:1");
  fromA.send(Uint8Array.of(1));
  const refused = listen();
  rig.a.dial("b:1", { ...refused, opened: () => expect.unreachable() });
  rig.time.advance(1);
  expect([bytesOf(atB), refused.ends[0]?.kind]).toEqual([[1], "refused"]);
  rig.network.reset("b:1", "a:1");
  rig.time.advance(1);
  expect([atA.ends[0]?.kind, atB.ends[0]?.kind]).toEqual(["reset", "reset"]);
});

test("an address is taken once", async () => {
  const { network } = await makeRig();
  await expect(network.transport("b:1").start()).rejects.toThrow(RangeError);
});

test("nothing is left when all is stopped", async () => {
  const rig = await makeRig();
  rig.network.setSpeed({ delayMs: 3, jitterMs: 2, bytesPerMs: 10 });
  const { fromA } = open(rig, 6);
  for (let index = 0; index < 50; index++) fromA.send(new Uint8Array(100));
  await rig.a.stop();
  await rig.b.stop();
  rig.time.advance(2_000);
  expect(rig.time.pendingCount).toBe(0);
});

/** A process that was killed while it started went on to listen, and its next epoch found the address taken. */
test("a process that ends before its transport is started never listens, and leaves the address to the next", async () => {
  const { network, time, a } = await makeRig();
  const ended = network.transport("c:1");
  network.kill("c:1");
  const next = network.transport("c:1");
  next.onConnection(listen);
  await ended.start();
  await next.start();
  let opened = 0;
  a.dial("c:1", { ...listen(), opened: () => opened++ });
  time.advance(10);
  expect(opened).toBe(1);
  ended.dial("a:1", { ...listen(), opened: () => opened++ });
  await ended.stop();
  time.advance(5_000);
  expect(opened).toBe(1);
});
