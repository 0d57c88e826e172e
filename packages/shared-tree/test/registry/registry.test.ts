import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { tombstoneMs } from "../../src/registry/registry-entry.ts";
import { createRegistryRouter, heal, type RegistryRouter, settle, stateOf } from "./registry-rig.ts";

const hourMs = 3_600_000;

function trio(): {
  time: ReturnType<typeof createVirtualTime>;
  routers: [RegistryRouter, RegistryRouter, RegistryRouter];
} {
  const time = createVirtualTime();
  const routers = ["a", "b", "c"].map((name) => createRegistryRouter(name, { time }));
  return { time, routers: routers as [RegistryRouter, RegistryRouter, RegistryRouter] };
}

test("a drain flag reaches everybody, and can be taken back and withdrawn", () => {
  const { routers } = trio();
  const [a, b, c] = routers;
  expect(c.registry.drainingOf("e1")).toBeUndefined();
  a.registry.setDraining("e1", true);
  settle(routers);
  expect(routers.map(({ registry }) => registry.drainingOf("e1"))).toEqual([true, true, true]);
  b.registry.setDraining("e1", false);
  settle(routers);
  expect(routers.map(({ registry }) => registry.drainingOf("e1"))).toEqual([false, false, false]);
  c.registry.setDraining("e1", undefined);
  settle(routers);
  expect(routers.map(({ registry }) => registry.drainingOf("e1"))).toEqual([undefined, undefined, undefined]);
  expect(a.changes).toEqual(["drain e1", "drain e1", "drain e1"]);
  expect(b.changes).toEqual(a.changes);
});

test("engines are told by source, and a removed one is gone everywhere", () => {
  const { routers } = trio();
  const [a, b, c] = routers;
  a.registry.putEngine("e1", "file", { url: "http://e1", labels: { zone: "x" } });
  b.registry.putEngine("e1", "dns", { url: "http://10.0.0.1" });
  b.registry.putEngine("e0", "dns", { url: "http://10.0.0.2" });
  settle(routers);
  expect(c.registry.engines()).toEqual([
    { engine: "e0", source: "dns", value: { url: "http://10.0.0.2" } },
    { engine: "e1", source: "dns", value: { url: "http://10.0.0.1" } },
    { engine: "e1", source: "file", value: { url: "http://e1", labels: { zone: "x" } } },
  ]);
  c.registry.removeEngine("e1", "dns");
  settle(routers);
  expect(a.registry.engines().map(({ engine, source }) => `${engine} ${source}`)).toEqual(["e0 dns", "e1 file"]);
});

test("only changes are written", () => {
  const { routers } = trio();
  const [a, b] = routers;
  a.registry.removeEngine("e1", "dns");
  a.registry.setDraining("e1", undefined);
  expect(a.outbox).toHaveLength(0);
  a.registry.putEngine("e1", "dns", { url: "u", labels: { x: 1, y: 2 } });
  settle(routers);
  b.registry.putEngine("e1", "dns", { labels: { y: 2, x: 1 }, url: "u" });
  b.registry.setDraining("e1", true);
  b.registry.setDraining("e1", true);
  expect(b.outbox).toHaveLength(1);
  expect(b.registry.describe()).toMatchObject({ generation: 1, entries: 2, clients: 2 });
});

test("what a caller changes in its object later changes nothing here", () => {
  const a = createRegistryRouter("a");
  const labels = { zone: "x" };
  a.registry.putEngine("e1", "file", { labels });
  labels.zone = "y";
  expect(a.registry.engines()[0]!.value).toEqual({ labels: { zone: "x" } });
});

test("of concurrent changes the later stamp holds, whatever Yjs makes of them", () => {
  for (const names of [
    ["a", "b"],
    ["b", "a"],
    ["x", "y"],
    ["y", "x"],
  ] as const) {
    const time = createVirtualTime();
    const routers = names.map((name) => createRegistryRouter(name, { time }));
    const [first, second] = routers as [RegistryRouter, RegistryRouter];
    first.registry.setDraining("e1", true);
    time.advance(5);
    second.registry.setDraining("e1", false);
    settle(routers);
    expect(routers.map(({ registry }) => registry.drainingOf("e1"))).toEqual([false, false]);
    const late = createRegistryRouter("late", { time });
    late.sync(first);
    expect(late.registry.drainingOf("e1")).toBe(false);
  }
});

test("an operator has the last word after a router whose clock is an hour ahead", () => {
  const time = createVirtualTime();
  const ahead = createRegistryRouter("ahead", { time, aheadMs: hourMs });
  const right = createRegistryRouter("right", { time });
  ahead.registry.setDraining("e1", true);
  settle([ahead, right]);
  expect(right.registry.drainingOf("e1")).toBe(true);
  right.registry.setDraining("e1", false);
  settle([ahead, right]);
  expect(ahead.registry.drainingOf("e1")).toBe(false);
});

test("a concurrent change of an older stamp does not bring a removed engine back", () => {
  const { time, routers } = trio();
  const [a, b, c] = routers;
  a.registry.putEngine("e1", "dns", { url: "u" });
  settle(routers);
  b.registry.putEngine("e1", "dns", { url: "u", labels: {} });
  time.advance(1_000);
  c.registry.removeEngine("e1", "dns");
  settle(routers);
  expect(routers.map(({ registry }) => registry.engines())).toEqual([[], [], []]);
});

test("what was removed is remembered for a day", () => {
  const { time, routers } = trio();
  const [a, b] = routers;
  a.registry.putEngine("e1", "dns", { url: "u" });
  a.registry.removeEngine("e1", "dns");
  settle(routers);
  for (const { registry } of routers) registry.expire();
  time.advance(tombstoneMs - hourMs / 2);
  for (const { registry } of routers) registry.expire();
  settle(routers);
  expect(a.registry.describe().entries).toBe(1);
  time.advance(hourMs);
  b.registry.expire();
  settle(routers);
  expect(routers.map(({ registry }) => registry.describe().entries)).toEqual([0, 0, 0]);
  expect(routers.map(({ outbox }) => outbox.length)).toEqual([0, 0, 0]);
});

test("a partition heals to what was said last on either side", () => {
  const { time, routers } = trio();
  const [a, b, c] = routers;
  a.registry.setDraining("e1", true);
  time.advance(10);
  c.registry.setDraining("e2", true);
  time.advance(10);
  b.registry.setDraining("e1", false);
  for (const { outbox } of routers) outbox.length = 0;
  heal(routers);
  const states = routers.map((router) => stateOf(router, ["e1", "e2"]));
  expect(states[0]).toBe(JSON.stringify([[], [false, true]]));
  expect(new Set(states).size).toBe(1);
});

test("garbage in the document is neither taken nor fatal, and goes where it hides something better", () => {
  const { routers } = trio();
  const [a, b] = routers;
  a.registry.setDraining("e1", true);
  settle(routers);
  const entries = b.registry.doc.getMap("entries");
  for (const garbage of [7, null, "x", [], { stamp: -1, router: "b", value: {} }, { stamp: 2 ** 53, router: "b" }]) {
    b.registry.doc.transact(() => entries.set("drain\u0000e1\u0000", garbage));
    entries.set("nonsense", garbage);
    entries.set("engine\u0000e2\u0000dns", garbage);
    entries.set("engine\u0000too\u0000many\u0000parts", { stamp: 1, router: "b", value: {} });
  }
  entries.set("engine\u0000e3\u0000dns", { stamp: 1, router: "b", value: { url: "x".repeat(3_000) } });
  settle(routers);
  expect(a.registry.engines()).toEqual([]);
  expect(routers.map(({ registry }) => registry.drainingOf("e1"))).toEqual([true, true, true]);
});

test("one past every bound is refused", () => {
  const { registry } = createRegistryRouter("a");
  const name = "n".repeat(255);
  registry.putEngine(name, name, { text: "x".repeat(2_048 - '{"text":""}'.length) });
  expect(() => registry.putEngine(`${name}n`, "dns", {})).toThrow(RangeError);
  expect(() => registry.putEngine("e", `${name}n`, {})).toThrow(RangeError);
  expect(() => registry.putEngine("e\u0000", "dns", {})).toThrow(RangeError);
  expect(() => registry.putEngine("e", "dns", { text: "x".repeat(2_048) })).toThrow(RangeError);
});
