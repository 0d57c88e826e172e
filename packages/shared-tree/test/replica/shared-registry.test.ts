import { asRouterId, createSeededRandom, silentMeter } from "@espalier/core";
import { createHybridClock } from "@espalier/mesh";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { Journals } from "../../src/documents/journal-store.ts";
import { Registry } from "../../src/registry/registry.ts";
import { shareRegistry } from "../../src/replica/replica.ts";

interface Router {
  readonly store: Journals;
  readonly registry: Registry;
}

function routerOf(name: string, time: VirtualTime, epoch = 1): Router {
  const origin = { router: asRouterId(name), epoch };
  const store = new Journals({ origin, clock: time.clock });
  const { clock } = time;
  const registry = new Registry({ self: () => origin, clock, hlc: createHybridClock(clock), meter: silentMeter });
  shareRegistry(registry, store);
  return { store, registry };
}

const names = ({ store }: Router): string[] => store.names().slice(1);

/** Everything that one has, to another, as at the beginning of a link. */
function bring(from: Router, to: Router): void {
  for (const name of names(from)) {
    for (const update of from.store.diff(name, to.store.stateVector(name), 65_536)) to.store.apply(update);
  }
}

/** Both ways until neither has anything that the other lacks. */
function exchange(...routers: readonly Router[]): void {
  for (let round = 0; round < 2; round++) {
    for (const from of routers) for (const to of routers) if (from !== to) bring(from, to);
  }
}

describe("documents of the registry among those that are exchanged", () => {
  test("are the first generation at first, and what is written in it reaches others", () => {
    const time = createVirtualTime();
    const [a, b] = [routerOf("a", time), routerOf("b", time)];
    expect(names(a)).toEqual(["registry/1"]);
    a.registry.putEngine("engine", "file", { url: "http://engine" });
    exchange(a, b);
    expect(b.registry.engines()).toEqual(a.registry.engines());
  });

  test("after a rotation are the next generation and no other, here and with whoever hears of it", () => {
    const time = createVirtualTime();
    const [a, b] = [routerOf("a", time), routerOf("b", time)];
    a.registry.setDraining("engine", true);
    exchange(a, b);
    b.registry.rotate();
    exchange(a, b);
    expect([names(a), names(b)]).toEqual([["registry/2"], ["registry/2"]]);
    expect(a.registry.drainingOf("engine")).toBe(true);
  });

  test("are both while the next generation is on its way", () => {
    const time = createVirtualTime();
    const [a, b] = [routerOf("a", time), routerOf("b", time)];
    const updates: Parameters<Journals["apply"]>[0][] = [];
    a.store.onUpdate((update) => updates.push(update));
    for (let number = 0; number < 300; number++) a.registry.putEngine(`e${number}`, "file", { number });
    exchange(a, b);
    updates.length = 0;
    a.registry.rotate();
    expect(b.store.apply(updates[0]!)).toBe("applied");
    expect(names(b)).toEqual(["registry/1", "registry/2"]);
    expect(b.registry.engines()).toHaveLength(300);
    for (const update of updates.slice(1)) b.store.apply(update);
    expect(names(b)).toEqual(["registry/2"]);
    expect(b.registry.engines()).toEqual(a.registry.engines());
  });

  test("of a generation that was left are not taken any more, and who sends them may give them up", () => {
    const time = createVirtualTime();
    const [a, b] = [routerOf("a", time), routerOf("b", time)];
    b.registry.setDraining("engine", true);
    const [old] = [...b.store.diff("registry/1", Uint8Array.of(0), 65_536)];
    a.registry.rotate();
    expect(a.store.apply(old!)).toBe("dropped");
    exchange(a, b);
    expect([a, b].map(({ registry }) => registry.drainingOf("engine"))).toEqual([true, true]);
  });

  test.each(["registry/0", "registry/01", "registry/x", "registry/", `registry/${2 ** 41}`, "overview/a"])(
    "%s is not one of them",
    (name) => {
      const router = routerOf("a", createVirtualTime());
      expect(router.store.apply({ name, from: 0, to: 0, bytes: Uint8Array.of(0, 0) })).toBe("dropped");
      expect(names(router)).toEqual(["registry/1"]);
    },
  );

  test("never become many, whatever generations others make up", () => {
    const router = routerOf("a", createVirtualTime());
    const random = createSeededRandom(4);
    for (let times = 0; times < 300; times++) {
      router.store.apply({ name: `registry/${2 + random.integer(5_000)}`, from: 0, to: 0, bytes: Uint8Array.of(0, 0) });
      expect(names(router).length).toBeLessThanOrEqual(5);
    }
    router.registry.setDraining("engine", true);
    expect(router.registry.drainingOf("engine")).toBe(true);
  });
});

test.each([1, 2, 3])(
  "restarts and rotations in any mixture, also two at a time, lose nothing and leave one document, seed %i",
  (seed) => {
    const time = createVirtualTime();
    const random = createSeededRandom(seed);
    let routers = ["a", "b", "c"].map((name) => routerOf(name, time));
    const expected = new Map<string, boolean>();
    for (let restart = 0; restart < 40; restart++) {
      time.advance(1 + random.integer(1_000));
      const at = random.integer(3);
      const begun = routerOf(["a", "b", "c"][at]!, time, time.clock.wallMs());
      routers = routers.map((router, index) => (index === at ? begun : router));
      bring(routers[(at + 1) % 3]!, begun);
      if (random.integer(6) === 0) routers[(at + 1) % 3]!.registry.rotate();
      if (random.integer(6) === 0) begun.registry.rotate();
      const engine = `e${random.integer(10)}`;
      expected.set(engine, restart % 2 === 0);
      begun.registry.setDraining(engine, restart % 2 === 0);
      exchange(...routers);
    }
    const { generation } = routers[0]!.registry.describe();
    expect(generation).toBeGreaterThan(3);
    for (const router of routers) {
      expect(names(router)).toEqual([`registry/${generation}`]);
      expect(router.registry.describe()).toMatchObject({ generation, entries: expected.size, dropped: [] });
      for (const [engine, isDraining] of expected) expect(router.registry.drainingOf(engine)).toBe(isDraining);
    }
  },
);
