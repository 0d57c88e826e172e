import { asRouterId, createSeededRandom, type Random } from "@espalier/core";
import { createVirtualTime, fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { type BindingEntry, BindingTable } from "../../src/placements/bindings.ts";
import type { BindingRecord } from "../../src/placements/placement-item.ts";
import { createLogRouter, type LogRouter } from "./placement-rig.ts";

function routersOf(
  count: number,
  bindingCapacity = 1_000,
): { time: ReturnType<typeof createVirtualTime>; routers: LogRouter[] } {
  const time = createVirtualTime();
  const routers = Array.from({ length: count }, (_, index) => createLogRouter(`r${index}`, { time, bindingCapacity }));
  return { time, routers };
}

function exchange(routers: readonly LogRouter[]): void {
  for (const router of routers) router.log.flush();
  for (const router of routers) for (const other of routers) if (other !== router) router.follow(other);
}

test("a binding counts here at once and elsewhere after a flush, until it expires or is forgotten", () => {
  const { time, routers } = routersOf(2);
  const [a, b] = routers as [LogRouter, LogRouter];
  a.bindings.set("resp_1", "engine-3", 10_000);
  a.bindings.set("resp_2", "engine-4", 60_000);
  expect(a.touches).toBe(2);
  expect(a.bindings.get("resp_1")).toBe("engine-3");
  expect(b.bindings.get("resp_1")).toBeUndefined();
  exchange(routers);
  expect(b.bindings.get("resp_1")).toBe("engine-3");
  time.advance(10_001);
  expect([a, b].map(({ bindings }) => bindings.get("resp_1"))).toEqual([undefined, undefined]);
  b.bindings.forget("resp_2");
  expect(b.bindings.get("resp_2")).toBeUndefined();
  exchange(routers);
  expect(a.bindings.get("resp_2")).toBeUndefined();
});

test("the last word holds, also after a binding by a router whose clock is far ahead", () => {
  const time = createVirtualTime();
  const ahead = createVirtualTime(time.clock.wallMs() + 3_600_000);
  const a = createLogRouter("a", { time: ahead });
  const b = createLogRouter("b", { time });
  a.bindings.set("key", "from a", 60_000);
  exchange([a, b]);
  b.bindings.set("key", "from b", 60_000);
  exchange([a, b]);
  expect([a, b].map(({ bindings }) => bindings.get("key"))).toEqual(["from b", "from b"]);
  b.bindings.forget("key");
  exchange([a, b]);
  expect([a, b].map(({ bindings }) => bindings.get("key"))).toEqual([undefined, undefined]);
});

test("how long a binding lasts is told from when this router heard of it, 0 where there is none", () => {
  const { time, routers } = routersOf(2);
  const [a, b] = routers as [LogRouter, LogRouter];
  a.bindings.set("session", "engine-3", 10_000);
  time.advance(3_000);
  exchange(routers);
  time.advance(1_000);
  expect([a, b].map(({ bindings }) => bindings.leftMs("session"))).toEqual([6_000, 9_000]);
  b.bindings.set("session", "engine-3", 10_000);
  exchange(routers);
  expect([a, b].map(({ bindings }) => bindings.leftMs("session"))).toEqual([10_000, 10_000]);
  a.bindings.forget("session");
  expect([a.bindings.leftMs("session"), a.bindings.leftMs("another")]).toEqual([0, 0]);
  time.advance(10_000);
  expect(b.bindings.leftMs("session")).toBe(0);
});

test("texts that are bound to a value are counted alike everywhere, until they are bound elsewhere, forgotten or expired", () => {
  const { time, routers } = routersOf(2, 4);
  const [a, b] = routers as [LogRouter, LogRouter];
  const counts = (value: string) => [a, b].map(({ bindings }) => bindings.count(value));
  for (const key of ["one", "two", "three"]) a.bindings.set(key, "engine-3", 10_000);
  b.bindings.set("four", "engine-3", 20_000);
  expect(counts("engine-3")).toEqual([3, 1]);
  exchange(routers);
  expect(counts("engine-3")).toEqual([4, 4]);
  time.advance(1);
  b.bindings.set("one", "engine-4", 20_000);
  a.bindings.forget("two");
  exchange(routers);
  expect([counts("engine-3"), counts("engine-4")]).toEqual([
    [2, 2],
    [1, 1],
  ]);
  // One past the capacity: the oldest goes, and the rest counts on.
  time.advance(1);
  a.bindings.set("five", "engine-3", 20_000);
  exchange(routers);
  expect(counts("engine-3")).toEqual([2, 2]);
  time.advance(10_000);
  expect(counts("engine-3")).toEqual([1, 1]);
  time.advance(10_000);
  expect([counts("engine-3"), counts("engine-4")]).toEqual([
    [0, 0],
    [0, 0],
  ]);
});

test("forgetting what is not bound writes nothing, and of two words between flushes only the last is written", () => {
  const { routers } = routersOf(1);
  const [a] = routers as [LogRouter];
  a.bindings.forget("nothing");
  a.log.flush();
  expect(a.journal.items).toHaveLength(0);
  a.bindings.set("key", "x".repeat(500), 60_000);
  a.bindings.set("key", "y", 60_000);
  a.log.flush();
  expect(a.journal.items).toHaveLength(1);
  expect(a.journal.items[0]!.bytes.length).toBeLessThan(60);
  expect(a.bindings.takePending()).toEqual([]);
});

test("bindings and placements do not share items, since bindings live longer", () => {
  const { time, routers } = routersOf(1);
  const [a] = routers as [LogRouter];
  a.bindings.set("key", "value", 600_000);
  a.log.place("e/0", Uint32Array.of(1, 2), 1, { ttlMs: 5_000, isConfirmed: false });
  a.log.flush();
  expect(a.journal.items).toHaveLength(2);
  time.advance(5_001);
  a.journal.trim();
  expect(a.journal.items).toHaveLength(1);
});

test("one binding more than there is room for makes that with the oldest stamp go, everywhere the same", () => {
  const { time, routers } = routersOf(2, 3);
  const [a, b] = routers as [LogRouter, LogRouter];
  for (const key of ["k1", "k2", "k3", "k4"]) {
    a.bindings.set(key, key, 60_000);
    a.log.flush();
    time.advance(1);
  }
  a.bindings.set("k2", "again", 60_000);
  a.log.flush();
  for (const item of [...a.journal.items].reverse()) b.log.receive(a.origin, item.bytes, () => undefined);
  for (const { bindings } of [a, b]) {
    expect(["k1", "k2", "k3", "k4"].map((key) => bindings.get(key))).toEqual([undefined, "again", "k3", "k4"]);
    expect(bindings.size).toBe(3);
  }
});

test("no more waits than there is room for, and a long list is written as several items", () => {
  const { routers } = routersOf(2, 1_000);
  const [a, b] = routers as [LogRouter, LogRouter];
  for (let index = 0; index < 1_001; index++) a.bindings.set(`key-${index}`, "v".repeat(1_000), 60_000);
  a.log.flush();
  expect(a.journal.items.length).toBeGreaterThan(3);
  b.follow(a);
  expect(b.bindings.get("key-0")).toBeUndefined();
  expect(b.bindings.get("key-1000")).toBe("v".repeat(1_000));
  expect(b.bindings.size).toBe(1_000);
});

test("a value that is too long is a programming error", () => {
  const { routers } = routersOf(1);
  const { bindings } = routers[0]!;
  bindings.set("key", "x".repeat(1_024), 1_000);
  expect(() => bindings.set("key", "x".repeat(1_025), 1_000)).toThrow(RangeError);
  expect(() => bindings.set("key", "ü".repeat(513), 1_000)).toThrow(RangeError);
});

test.each(fixedSeeds(10, 1))("routers agree under any delivery, seed %d", (seed) => {
  const random = createSeededRandom(seed);
  const { time, routers } = routersOf(4);
  const keys = Array.from({ length: 12 }, (_, index) => `key-${index}`);
  for (let step = 0; step < 300; step++) {
    time.advance(random.integer(3));
    const router = routers[random.integer(4)]!;
    const key = keys[random.integer(keys.length)]!;
    const dice = random.float();
    if (dice < 0.4) router.bindings.set(key, `value-${step}`, 3_600_000);
    else if (dice < 0.5) router.bindings.forget(key);
    else if (dice < 0.7) router.log.flush();
    else router.follow(routers[random.integer(4)]!);
  }
  for (const router of routers) router.log.flush();
  // Everybody reads every journal again, in an order of its own.
  for (const router of routers) {
    for (const other of [...routers].sort(() => random.float() - 0.5)) if (other !== router) router.join(other);
  }
  const said = routers.map(({ bindings }) => JSON.stringify(keys.map((key) => bindings.get(key) ?? null)));
  expect(new Set(said).size).toBe(1);
});

// Symptom: one router whose clock was hours ahead took the bindings of sessions from all others: what they bound was gone at
// once. Mechanism: its stamps were never the oldest, so that the table kept nothing but them, expired or not, and took
// nothing any more that was older than the last entry that had found no room.
test("bindings by a clock that runs ahead go like those made now, and are counted; what others bind holds", () => {
  const time = createVirtualTime();
  const ahead = createVirtualTime(time.clock.wallMs() + 3 * 3_600_000);
  const capacity = 20;
  const a = createLogRouter("a", { time: ahead });
  const [b, c] = ["b", "c"].map((name) => createLogRouter(name, { time, bindingCapacity: capacity })) as [
    LogRouter,
    LogRouter,
  ];
  for (let at = 0; at < 3 * capacity; at++) a.bindings.set(`a${at}`, "engine-a", 600_000);
  exchange([a, b, c]);
  expect(b.meter.value("espalier_placements_received_total", "ahead")).toBe(3 * capacity);
  for (let at = 0; at < 2 * capacity; at++) {
    time.advance(1);
    b.bindings.set(`b${at}`, "engine-b", 600_000);
    expect(b.bindings.get(`b${at}`)).toBe("engine-b");
  }
  exchange([b, c]);
  expect([b, c].map(({ bindings }) => bindings.get(`b${2 * capacity - 1}`))).toEqual(["engine-b", "engine-b"]);
  expect([b, c].map(({ bindings }) => bindings.get("a59"))).toEqual([undefined, undefined]);
  // What has to be later than a stamp ahead of time stands in nobody's way, either.
  for (let at = 0; at < capacity; at++) a.bindings.set(`both${at}`, "engine-a", 600_000);
  exchange([a, b]);
  for (let at = 0; at < capacity; at++) b.bindings.set(`both${at}`, "engine-b", 600_000);
  b.bindings.set("mine", "engine-b", 600_000);
  expect([b.bindings.get("mine"), b.bindings.size]).toEqual(["engine-b", capacity]);
  // And the router with the clock takes what others bind.
  a.bindings.set("shared", "engine-a", 600_000);
  exchange([a, b]);
  b.bindings.set("shared", "engine-b", 600_000);
  exchange([a, b]);
  expect([a, b].map(({ bindings }) => bindings.get("shared"))).toEqual(["engine-b", "engine-b"]);
});

test("without room, what has expired goes before anything that holds", () => {
  const { time, routers } = routersOf(1, 10);
  const [a] = routers as [LogRouter];
  for (let at = 0; at < 5; at++) a.bindings.set(`long${at}`, "engine", 600_000);
  for (let at = 0; at < 5; at++) a.bindings.set(`short${at}`, "engine", 1_000);
  time.advance(2_000);
  for (let at = 0; at < 5; at++) a.bindings.set(`new${at}`, "engine", 600_000);
  const keys = ["long", "new"].flatMap((name) => Array.from({ length: 5 }, (_, at) => `${name}${at}`));
  expect(keys.map((key) => a.bindings.get(key))).toEqual(keys.map(() => "engine"));
  expect(a.bindings.size).toBe(10);
  a.bindings.set("one more", "engine", 600_000);
  expect([a.bindings.get("one more"), a.bindings.get("long0"), a.bindings.size]).toEqual(["engine", undefined, 10]);
});

const randomEntry = (random: Random): BindingEntry => {
  const record: BindingRecord = {
    kind: "bind",
    stamp: random.integer(1_000),
    ttlMs: 1_000,
    key: { low: random.integer(40), high: 0 },
    value: "",
  };
  return { record, router: asRouterId(`r${random.integer(3)}`), expiresMs: 1, rank: record.stamp };
};

test.each([1, 2, 3, 4, 5])("the table holds the newest of all that it was given, in any order, seed %d", (seed) => {
  const random = createSeededRandom(seed);
  const rank = ({ record, router }: BindingEntry): number => record.stamp * 10 + Number(router.slice(1));
  for (let round = 0; round < 50; round++) {
    const entries = Array.from({ length: 1 + random.integer(150) }, () => randomEntry(random));
    const newest = new Map<number, number>();
    for (const entry of entries) {
      newest.set(entry.record.key.low, Math.max(newest.get(entry.record.key.low) ?? 0, rank(entry)));
    }
    const expected = [...newest.values()].sort((one, other) => other - one).slice(0, 10);
    const table = new BindingTable(10);
    for (const entry of entries.sort(() => random.float() - 0.5)) table.put(entry, 0);
    const held = Array.from({ length: 40 }, (_, low) => table.get({ low, high: 0 })).flatMap((entry) =>
      entry ? [rank(entry)] : [],
    );
    // Of several of one rank any may have found room, so ranks are compared.
    expect(held.sort((one, other) => other - one)).toEqual(expected);
    expect(table.size).toBe(expected.length);
  }
});
