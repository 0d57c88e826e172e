import { createRecordingLogger } from "@espalier/testing";
import { expect, test } from "vitest";
import type { Engine } from "../../src/workers/engine.ts";
import { defaultFleetOptions } from "../../src/workers/fleet-options.ts";
import { createPanicMode } from "../../src/workers/panic-mode.ts";

interface FakeEngine {
  state: "up" | "down";
  readonly breaker: { state: "closed" | "open" };
  isOverruled: boolean;
  isTried: boolean;
}

/** A fleet of one model, and how often a change had all of it gone through. */
function createRig(count: number) {
  const engines: FakeEngine[] = Array.from({ length: count }, () => ({
    state: "up",
    breaker: { state: "closed" },
    isOverruled: false,
    isTried: false,
  }));
  const asEngine = (engine: FakeEngine): Engine =>
    Object.assign(engine, {
      draining: false,
      targets: [{ exclusion: undefined }],
      overrule(is: boolean) {
        engine.isOverruled = is;
      },
      tryThoughDown(is: boolean) {
        engine.isTried = is;
      },
    }) as unknown as Engine;
  const members = new Set(engines.map(asEngine));
  let looks = 0;
  const pools = () => {
    looks += 1;
    return new Map([["m", [...members].map((engine) => ({ rank: 0, engine }))]]) as never;
  };
  const has = (engine: Engine): boolean => members.has(engine);
  const { changed } = createPanicMode({ logger: createRecordingLogger(), options: defaultFleetOptions, pools, has });
  return {
    engines,
    leave: (engine: FakeEngine) => members.delete(asEngine(engine)),
    /** How often all engines were gone through because of a change. */
    looksAfter(change: Parameters<typeof changed>[0], engine: FakeEngine): number {
      const before = looks;
      changed(change, asEngine(engine));
      return looks - before;
    },
  };
}

test("nothing is gone through while all engines are well, whatever changes", () => {
  const { engines, looksAfter } = createRig(4);
  for (const change of ["added", "state", "breaker", "models", "draining", "gone"] as const) {
    expect(looksAfter(change, engines[0]!)).toBe(0);
  }
});

test("breakers are looked at from the first that opens until the last has closed", () => {
  const { engines, looksAfter } = createRig(4);
  const [first, second, third, well] = engines as [FakeEngine, FakeEngine, FakeEngine, FakeEngine];
  for (const engine of [first, second, third]) {
    engine.breaker.state = "open";
    expect(looksAfter("breaker", engine)).toBe(1);
  }
  expect(engines.map(({ isOverruled }) => isOverruled)).toEqual([true, true, true, false]);
  expect(looksAfter("state", well)).toBe(1);
  for (const engine of [first, second, third]) {
    engine.breaker.state = "closed";
    expect(looksAfter("breaker", engine)).toBe(1);
  }
  expect(engines.map(({ isOverruled }) => isOverruled)).toEqual([false, false, false, false]);
  expect([looksAfter("state", well), looksAfter("breaker", well)]).toEqual([0, 0]);
});

test("an engine that is gone is not looked at any more, though its breaker is open", () => {
  const { engines, leave, looksAfter } = createRig(3);
  const [gone, well] = engines as [FakeEngine, FakeEngine];
  gone.breaker.state = "open";
  expect(looksAfter("breaker", gone)).toBe(1);
  leave(gone);
  expect(looksAfter("gone", gone)).toBe(1);
  expect(looksAfter("state", well)).toBe(0);
});

test("health checks are looked at while an engine is down, and not for what its breaker does", () => {
  const { engines, looksAfter } = createRig(3);
  const [first, second, well] = engines as [FakeEngine, FakeEngine, FakeEngine];
  for (const engine of [first, second]) {
    engine.state = "down";
    expect(looksAfter("state", engine)).toBe(1);
  }
  expect(engines.map(({ isTried }) => isTried)).toEqual([true, true, false]);
  expect(looksAfter("breaker", well)).toBe(0);
  for (const engine of [first, second]) {
    engine.state = "up";
    expect(looksAfter("state", engine)).toBe(1);
  }
  expect(engines.map(({ isTried }) => isTried)).toEqual([false, false, false]);
  expect(looksAfter("state", well)).toBe(0);
});
