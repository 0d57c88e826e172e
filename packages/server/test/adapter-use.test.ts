/** Who uses which adapter where: by this router's own requests, by the word of others, by the engine's metrics. */
import { createSeededRandom } from "@espalier/core";
import type { EngineRecord } from "@espalier/engines";
import { createLocalBindings } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { announceEveryMs, createAdapterUse, inUseTtlMs } from "../src/adapters/adapter-use.ts";

interface Reading {
  readonly running: readonly string[];
  readonly waiting: readonly string[];
}

/** Routers that share bindings at once, and an engine whose metrics say what they are given. */
function rig(routers: number, isShared = true) {
  const time = createVirtualTime();
  const { clock, scheduler, advance } = time;
  const bindings = createLocalBindings(clock);
  let writes = 0;
  const shared = {
    ...bindings,
    set(key: string, value: string, ttlMs: number): void {
      writes += 1;
      bindings.set(key, value, ttlMs);
    },
    forget: (key: string) => bindings.set(key, "", 0),
  };
  let reading: Reading | undefined;
  let readMs = Number.NEGATIVE_INFINITY;
  const signals = { ageMs: () => clock.nowMs() - readMs };
  const target = {
    signals,
    adapters: {
      get reading() {
        return reading;
      },
    },
  };
  const engine = { id: "e", targets: [target] } as unknown as EngineRecord;
  const uses = Array.from({ length: routers }, (_, seed) =>
    createAdapterUse({
      ...{ clock, scheduler, random: createSeededRandom(seed) },
      shared: isShared ? shared : undefined,
    }),
  );
  return {
    ...{ clock, advance, engine, uses, writes: () => writes },
    read(next: Partial<Reading>): void {
      reading = { running: [], waiting: [], ...next };
      readMs = clock.nowMs();
    },
  };
}

test("an adapter is in use while a request for it runs, and not after its last one", () => {
  const { uses, engine, advance, clock } = rig(1, false);
  const [use] = uses;
  expect(use!.isInUse(engine, "a")).toBe(false);
  expect(use!.lastUsedMs(engine, "a")).toBe(Number.NEGATIVE_INFINITY);
  const ends = [use!.begin(engine, "a"), use!.begin(engine, "a")];
  ends[0]!();
  ends[0]!();
  advance(100_000);
  expect(use!.isInUse(engine, "a")).toBe(true);
  expect(use!.isInUse(engine, "b")).toBe(false);
  ends[1]!();
  expect(use!.isInUse(engine, "a")).toBe(false);
  expect(use!.lastUsedMs(engine, "a")).toBe(clock.nowMs());
});

test("an engine of the same name at another place has uses of its own", () => {
  const { uses, engine } = rig(1, false);
  uses[0]!.begin(engine, "a");
  expect(uses[0]!.isInUse({ ...engine } as EngineRecord, "a")).toBe(false);
});

describe("other routers", () => {
  test("know within a second how long ago it was used", () => {
    const { uses, engine, advance } = rig(2);
    const [one, other] = uses;
    expect(other!.ageMs(engine, "a")).toBe(Number.POSITIVE_INFINITY);
    one!.begin(engine, "a")();
    advance(1_000);
    expect([one, other].map((use) => use!.ageMs(engine, "a"))).toEqual([1_000, 1_000]);
    advance(500);
    expect(other!.ageMs(engine, "a")).toBe(1_500);
    one!.unloaded(engine, "a");
    advance(1_000);
    expect(other!.ageMs(engine, "a")).toBe(Number.POSITIVE_INFINITY);
  });

  test("know of a request that takes long, and for three words after it", () => {
    const { uses, engine, advance } = rig(2);
    const [one, other] = uses;
    const end = one!.begin(engine, "a");
    for (let waitedMs = 0; waitedMs < 120_000; waitedMs += 500) {
      expect(other!.isInUse(engine, "a"), String(waitedMs)).toBe(true);
      advance(500);
    }
    end();
    const said = other!.lastUsedMs(engine, "a");
    advance(inUseTtlMs - announceEveryMs - 1);
    expect(other!.isInUse(engine, "a")).toBe(true);
    advance(announceEveryMs + 1);
    expect(other!.isInUse(engine, "a")).toBe(false);
    expect(other!.lastUsedMs(engine, "a")).toBe(said);
  });

  test("are told at most every two seconds, however many requests there are", () => {
    const { uses, engine, advance, writes } = rig(1);
    for (let request = 0; request < 1_000; request++) {
      uses[0]!.begin(engine, "a")();
      advance(10);
    }
    expect(writes()).toBeLessThanOrEqual(10_000 / announceEveryMs + 1);
    const reported = writes();
    advance(60_000);
    expect(writes()).toBe(reported);
  });

  test("are believed although this router wrote last", () => {
    const { uses, engine, advance } = rig(2);
    const [one, other] = uses;
    const end = other!.begin(engine, "a");
    advance(500);
    one!.begin(engine, "a")();
    expect(one!.isInUse(engine, "a")).toBe(true);
    advance(2 * announceEveryMs);
    expect(one!.isInUse(engine, "a")).toBe(true);
    end();
    advance(inUseTtlMs);
    expect(one!.isInUse(engine, "a")).toBe(false);
  });

  test("that use nothing leave it free soon after this router's own use", () => {
    const { uses, engine, advance } = rig(2);
    uses[0]!.begin(engine, "a")();
    advance(1.5 * announceEveryMs);
    expect(uses[0]!.isInUse(engine, "a")).toBe(false);
    expect(uses[1]!.isInUse(engine, "a")).toBe(true);
  });

  test("hear of what is there, until it is unloaded; a later use is news", () => {
    const { uses, engine } = rig(2);
    const [one, other] = uses;
    expect(other!.isKnownInUse(engine, "a")).toBe(false);
    one!.begin(engine, "a")();
    expect(other!.isKnownInUse(engine, "a")).toBe(true);
    other!.unloaded(engine, "a");
    expect(one!.isKnownInUse(engine, "a")).toBe(false);
    other!.begin(engine, "a")();
    expect(one!.isKnownInUse(engine, "a")).toBe(true);
    expect(rig(1, false).uses[0]!.isKnownInUse(engine, "a")).toBe(false);
  });

  test("a seeded storm: what any router has a request for is in use in the eyes of all", () => {
    const random = createSeededRandom(7);
    const { uses, engine, advance } = rig(3);
    const open: { readonly adapter: string; readonly end: () => void }[] = [];
    for (let step = 0; step < 3_000; step++) {
      if (random.float() < 0.5 && open.length < 8) {
        const adapter = `a${random.integer(5)}`;
        open.push({ adapter, end: uses[random.integer(3)]!.begin(engine, adapter) });
      } else if (open.length > 0) open.splice(random.integer(open.length), 1)[0]!.end();
      advance(random.integer(1_500));
      for (const { adapter } of open) for (const use of uses) expect(use.isInUse(engine, adapter)).toBe(true);
    }
  });
});

describe("the engine's metrics", () => {
  test("tell of requests that no router sent", () => {
    const { uses, engine, read, advance } = rig(1, false);
    read({ running: ["a"], waiting: ["b"] });
    for (const adapter of ["a", "b"]) expect(uses[0]!.isInUse(engine, adapter)).toBe(true);
    expect(uses[0]!.isInUse(engine, "c")).toBe(false);
    advance(1_000);
    read({});
    for (const adapter of ["a", "b"]) expect(uses[0]!.isInUse(engine, adapter)).toBe(false);
  });

  test("say nothing new when they are older than the end of this router's last request", () => {
    const { uses, engine, read, advance } = rig(1, false);
    const end = uses[0]!.begin(engine, "a");
    read({ running: ["a"] });
    advance(5);
    end();
    expect(uses[0]!.isInUse(engine, "a")).toBe(false);
    advance(5);
    read({ running: ["a"] });
    expect(uses[0]!.isInUse(engine, "a")).toBe(true);
  });
});
