import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { encodeStateAsUpdate } from "yjs";
import { maxNextGenerations } from "../../src/registry/generation-document.ts";
import { maxRegistryClients } from "../../src/registry/registry.ts";
import { maxRegistryEntries } from "../../src/registry/registry-entry.ts";
import { createRegistryRouter, heal, type RegistryRouter, settle, stateOf } from "./registry-rig.ts";

function couple(): { time: ReturnType<typeof createVirtualTime>; a: RegistryRouter; b: RegistryRouter } {
  const time = createVirtualTime();
  return { time, a: createRegistryRouter("a", { time }), b: createRegistryRouter("b", { time }) };
}

test("all move to the next generation, and take along what only they know", () => {
  const { a, b } = couple();
  a.registry.setDraining("e1", true);
  settle([a, b]);
  const documents: string[] = [];
  b.registry.onDocument(({ name, isOpen }) => documents.push(`${isOpen ? "+" : "-"}${name}`));
  b.registry.setDraining("e2", true);
  b.outbox.length = 0;
  a.registry.rotate();
  settle([a, b]);
  expect([a, b].map(({ registry }) => registry.name)).toEqual(["registry/2", "registry/2"]);
  expect(documents).toEqual(["+registry/2", "-registry/1"]);
  expect([a, b].map((router) => stateOf(router, ["e1", "e2"]))).toEqual(
    Array(2).fill(JSON.stringify([[], [true, true]])),
  );
  expect(a.registry.doc).not.toBe(b.registry.doc);
  expect(a.registry.documents()).toHaveLength(1);
});

test("a generation that is not whole yet is waited for, and everything goes on meanwhile", () => {
  const { a, b } = couple();
  for (let engine = 0; engine < 600; engine++) a.registry.setDraining(`e${engine}`, true);
  settle([a, b]);
  a.registry.rotate();
  const updates = a.outbox.splice(0);
  expect(updates.length).toBeGreaterThan(3);
  for (const sent of updates.slice(0, 2)) b.receive(sent);
  expect(b.registry.name).toBe("registry/1");
  expect(b.registry.documents().map(({ name }) => name)).toEqual(["registry/1", "registry/2"]);
  b.registry.setDraining("e7", false);
  expect(b.registry.drainingOf("e599")).toBe(true);
  for (const sent of updates.slice(2)) b.receive(sent);
  expect(b.registry.name).toBe("registry/2");
  settle([a, b]);
  expect([a, b].map(({ registry }) => [registry.drainingOf("e7"), registry.drainingOf("e599")])).toEqual([
    [false, true],
    [false, true],
  ]);
  // Only what was new had to be written again.
  expect(b.registry.describe().clients).toBe(2);
});

test("two routers that begin the same generation, and one that begins a later one, end in the same", () => {
  const time = createVirtualTime();
  const routers = ["a", "b", "c"].map((name) => createRegistryRouter(name, { time }));
  const [a, b, c] = routers as [RegistryRouter, RegistryRouter, RegistryRouter];
  a.registry.setDraining("e1", true);
  settle(routers);
  a.registry.rotate();
  b.registry.rotate();
  c.registry.rotate();
  c.registry.rotate();
  b.registry.setDraining("e2", true);
  settle(routers);
  heal(routers);
  expect(routers.map(({ registry }) => registry.name)).toEqual(Array(3).fill("registry/3"));
  expect(new Set(routers.map((router) => stateOf(router, ["e1", "e2"])))).toEqual(
    new Set([JSON.stringify([[], [true, true]])]),
  );
});

test("documents of earlier generations and of other names are not opened", () => {
  const { a } = couple();
  a.registry.rotate();
  expect(a.registry.open("registry/2")).toBe(a.registry.doc);
  for (const name of [
    "registry/1",
    "registry/0",
    "registry/-1",
    "registry/01",
    "registry/x",
    "journal/2",
    "registry/",
  ]) {
    expect(a.registry.open(name)).toBeUndefined();
  }
  expect(a.registry.open("registry/9")).toBeDefined();
  expect(a.registry.open("registry/8")).toBeDefined();
  expect(a.registry.documents().map(({ name }) => name)).toEqual(["registry/2", "registry/9", "registry/8"]);
});

test("a generation that nobody completes holds nobody up", () => {
  const { a, b } = couple();
  a.registry.setDraining("e1", true);
  settle([a, b]);
  a.registry.open("registry/4");
  b.registry.open("registry/4");
  b.registry.rotate();
  expect(b.registry.name).toBe("registry/5");
  expect(b.registry.documents()).toHaveLength(1);
  settle([a, b]);
  expect(a.registry.name).toBe("registry/5");
  expect(a.registry.drainingOf("e1")).toBe(true);
});

test("one later generation more than are waited for makes the lowest go", () => {
  const { a } = couple();
  const closed: string[] = [];
  a.registry.onDocument(({ name, isOpen }) => {
    if (!isOpen) closed.push(name);
  });
  for (const generation of [10, 11, 12, 13]) expect(a.registry.open(`registry/${generation}`)).toBeDefined();
  expect(a.registry.open("registry/9")).toBeUndefined();
  expect(closed).toEqual([]);
  expect(a.registry.open("registry/14")).toBeDefined();
  expect(closed).toEqual(["registry/10"]);
  expect(a.registry.documents()).toHaveLength(1 + maxNextGenerations);
  expect(a.registry.open(`registry/${2 ** 40 + 1}`)).toBeUndefined();
});

test("what was removed over a day ago is left behind, and nobody carries it over", () => {
  const { time, a, b } = couple();
  a.registry.putEngine("e1", "dns", { url: "u" });
  a.registry.removeEngine("e1", "dns");
  a.registry.setDraining("e2", true);
  settle([a, b]);
  time.advance(25 * 3_600_000);
  a.registry.rotate();
  settle([a, b]);
  expect([...b.registry.doc.getMap("entries").keys()]).toEqual(["drain\u0000e2\u0000"]);
  expect(b.registry.describe().entries).toBe(1);
});

test("a thousand restarts of routers leave the document as small as before", () => {
  const time = createVirtualTime();
  let stable = createRegistryRouter("a", { time });
  for (let engine = 0; engine < 20; engine++)
    stable.registry.putEngine(`e${engine}`, "file", { url: `http://e${engine}` });
  const sizes: number[] = [];
  let rotations = 0;
  for (let epoch = 1; epoch <= 1_000; epoch++) {
    const restarted = createRegistryRouter("b", { time, epoch });
    restarted.sync(stable);
    restarted.registry.setDraining(`e${epoch % 20}`, epoch % 3 === 0);
    settle([stable, restarted]);
    if (stable.registry.needsRotation) {
      stable.registry.rotate();
      rotations += 1;
    }
    if (epoch % 20 === 0) sizes.push(encodeStateAsUpdate(stable.registry.doc).length);
    stable.outbox.length = 0;
    time.advance(1_000);
  }
  expect(rotations).toBeGreaterThanOrEqual(2);
  expect(stable.registry.describe().clients).toBeLessThanOrEqual(maxRegistryClients);
  expect(Math.max(...sizes.slice(25))).toBeLessThanOrEqual(Math.max(...sizes.slice(0, 25)) * 1.1);
  expect(Math.max(...sizes)).toBeLessThan(40_000);
  const joiner = createRegistryRouter("c", { time });
  joiner.sync(stable);
  stable = joiner;
  expect(stable.registry.engines()).toHaveLength(20);
}, 60_000);

test("a document of many changes by few writers is rotated too", () => {
  const { a } = couple();
  let changes = 0;
  while (!a.registry.needsRotation && changes < 100_000) {
    const engine = `e${changes % 40}`;
    a.registry.setDraining(engine, changes % 80 < 40);
    changes += 1;
  }
  const { structs } = a.registry.describe();
  if (a.registry.needsRotation) a.registry.rotate();
  expect(a.registry.describe().structs).toBeLessThanOrEqual(structs);
  expect(a.registry.describe().structs).toBeLessThan(200);
  a.outbox.length = 0;
});

test("one engine more than there is room for is refused here; of one from elsewhere the earliest is dropped", () => {
  const { time, a, b } = couple();
  for (let index = 0; index < maxRegistryEntries; index++) a.registry.putEngine(`e${index}`, "admin", {});
  a.outbox.length = 0;
  expect(() => a.registry.putEngine("one more", "admin", {})).toThrow(RangeError);
  time.advance(1_000);
  b.registry.putEngine("from b", "admin", {});
  a.sync(b);
  const engines = a.registry.engines().map(({ engine }) => engine);
  expect([engines.length, engines.includes("from b"), engines.includes("e0")]).toEqual([
    maxRegistryEntries,
    true,
    false,
  ]);
  expect(a.changes.slice(-2)).toEqual(["engine from b", "engine e0"]);
  expect(a.registry.describe().dropped).toEqual([{ kind: "engine", count: 1 }]);
});

test("a drain flag more than there is room for takes the place of the earliest, and is counted", () => {
  const { a, b } = couple();
  for (let index = 0; index < maxRegistryEntries; index++) a.registry.setDraining(`e${index}`, true);
  a.outbox.length = 0;
  b.sync(a);
  a.registry.setDraining("e0", false);
  b.registry.setDraining("one more", true);
  settle([a, b]);
  for (const { registry, meter } of [a, b]) {
    expect(["e0", "e1", "e2", "one more"].map((engine) => registry.drainingOf(engine))).toEqual([
      false,
      undefined,
      true,
      true,
    ]);
    expect(meter.value("espalier_registry_dropped_total", "drain")).toBeGreaterThan(0);
  }
});

test("routers that learn more drain flags than there is room for, in different orders, keep the same ones", () => {
  const time = createVirtualTime();
  const writers = ["a", "b"].map((name) => createRegistryRouter(name, { time }));
  const half = maxRegistryEntries / 2 + 100;
  for (let index = 0; index < half; index++) {
    time.advance(1);
    for (const [at, { registry }] of writers.entries()) registry.setDraining(`${at}-${index}`, true);
  }
  const [c, d] = ["c", "d"].map((name) => createRegistryRouter(name, { time })) as [RegistryRouter, RegistryRouter];
  for (const writer of writers) c.sync(writer);
  for (const writer of writers.toReversed()) d.sync(writer);
  const kept = ({ registry }: RegistryRouter): string[] =>
    [0, 1].flatMap((at) =>
      Array.from({ length: half }, (_, index) => `${at}-${index}`).filter((engine) => registry.drainingOf(engine)),
    );
  expect(kept(c)).toHaveLength(maxRegistryEntries);
  expect(kept(c)).toEqual(kept(d));
  expect([c, d].map(({ registry }) => registry.describe().dropped)).toEqual(
    Array(2).fill([{ kind: "drain", count: 200 }]),
  );
});

test("as many engines as there is room for take no place from drain flags, here and from elsewhere", () => {
  const { a, b } = couple();
  for (let index = 0; index < maxRegistryEntries; index++) a.registry.putEngine(`e${index}`, "admin", {});
  expect(() => a.registry.putEngine("one more", "admin", {})).toThrow(RangeError);
  a.outbox.length = 0;
  a.registry.setDraining("e1", true);
  b.registry.setDraining("e2", true);
  a.sync(b);
  expect(["e1", "e2"].map((engine) => a.registry.drainingOf(engine))).toEqual([true, true]);
  expect(a.registry.describe().dropped).toEqual([]);
});
