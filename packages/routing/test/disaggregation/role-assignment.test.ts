import { createSeededRandom, type EngineRole } from "@espalier/core";
import { createVirtualTime, randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  choosePrefillEngines,
  createPrefillCount,
  createRoleAssignment,
  createRoleBalance,
  prefillCountBand,
  prefillCountHoldMs,
  prefillCountSettleMs,
  promptWorkMs,
} from "../../src/disaggregation/index.ts";

const enginesOf = (count: number, role: EngineRole = "both", from = 0) =>
  Array.from({ length: count }, (_, at) => ({ id: `engine-${from + at}`, role }));

describe("how many compute prompts", () => {
  /** A count that has settled on a share of eight engines. */
  function settled(share: number, engineCount = 8) {
    const time = createVirtualTime();
    const count = createPrefillCount(time.clock);
    count.next(share, engineCount);
    time.advance(prefillCountSettleMs);
    expect(count.next(share, engineCount)).toBe(
      Math.min(engineCount - 1, Math.max(1, Math.round(share * engineCount))),
    );
    return { ...time, count };
  }

  test("nothing is decided before enough was seen, nor for one engine", () => {
    const { clock, advance } = createVirtualTime();
    const count = createPrefillCount(clock);
    advance(10 * prefillCountSettleMs);
    expect(count.next(Number.NaN, 8)).toBeUndefined();
    expect(count.next(0.5, 8)).toBeUndefined();
    advance(prefillCountSettleMs - 1);
    expect(count.next(0.5, 8)).toBeUndefined();
    advance(1);
    expect(count.next(0.5, 1)).toBeUndefined();
    expect(count.decision()).toBeUndefined();
    expect(count.next(0.5, 8)).toBe(4);
    expect(count.decision()).toEqual({ count: 4, ageMs: 0 });
  });

  test("one engine at a time changes, no sooner than half a minute after the last one", () => {
    const { count, advance } = settled(0.25);
    const seen: (number | undefined)[] = [];
    for (let step = 0; step < 8; step++) {
      advance(prefillCountHoldMs - 1);
      seen.push(count.next(0.75, 8));
      advance(1);
      seen.push(count.next(0.75, 8));
    }
    expect(seen).toEqual([2, 3, 3, 4, 4, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6]);
  });

  test("up to three quarters of an engine beside it, the number stays", () => {
    const { count, advance } = settled(0.5);
    advance(prefillCountHoldMs);
    expect(count.next((4 + prefillCountBand) / 8, 8)).toBe(4);
    expect(count.next((4 - prefillCountBand) / 8, 8)).toBe(4);
    expect(count.next((4 + prefillCountBand + 0.001) / 8, 8)).toBe(5);
  });

  test("either side keeps an engine, however few are left", () => {
    const { count, advance } = settled(1);
    expect(count.next(1, 3)).toBe(2);
    expect(count.next(1, 2)).toBe(1);
    // Those that come back find it as it was.
    expect(count.next(1, 8)).toBe(7);
    advance(prefillCountHoldMs);
    expect(count.next(0, 2)).toBe(1);
  });

  test("what another router decided later counts, and holds from then on", () => {
    const { count, advance } = settled(0.5);
    advance(5_000);
    count.adopt({ count: 6, ageMs: 6_000 });
    expect(count.next(0.5, 8)).toBe(4);
    count.adopt({ count: 6, ageMs: 1_000 });
    expect(count.next(0.5, 8)).toBe(6);
    expect(count.decision()).toEqual({ count: 6, ageMs: 1_000 });
    advance(prefillCountHoldMs - 1_001);
    expect(count.next(0.5, 8)).toBe(6);
    advance(1);
    expect(count.next(0.5, 8)).toBe(5);
  });

  test("under noise that stays within the band it never changes; after a step it is within one of what is advised", () => {
    fc.assert(
      fc.property(
        fc.integer(),
        fc.double({ min: 0.1, max: 0.9, noNaN: true }),
        fc.integer({ min: 2, max: 40 }),
        (seed, share, engines) => {
          const random = createSeededRandom(seed);
          const { count, advance } = settled(share, engines);
          const noisy = (mean: number) => mean + ((random.float() - 0.5) / engines) * 0.49;
          const first = count.next(noisy(share), engines);
          for (let step = 0; step < 200; step++) {
            advance(10_000);
            expect(count.next(noisy(share), engines)).toBe(first);
          }
          const after = random.float();
          let last: number | undefined;
          for (let step = 0; step < 4 * engines; step++) {
            advance(prefillCountHoldMs);
            last = count.next(after, engines);
          }
          const advised = Math.min(engines - 1, Math.max(1, Math.round(after * engines)));
          expect(Math.abs(last! - advised)).toBeLessThanOrEqual(1);
        },
      ),
      { numRuns: randomRuns(50) },
    );
  });
});

describe("who computes prompts", () => {
  test("as many as are wanted less those of the role, and one at least answers", () => {
    const mixed = [...enginesOf(2, "prefill"), ...enginesOf(4, "both", 2), ...enginesOf(1, "decode", 6)];
    expect([1, 2, 3, 5, 6, 9].map((wanted) => choosePrefillEngines(mixed, wanted).size)).toEqual([0, 0, 1, 3, 4, 4]);
    expect([0, 1, 3, 4, 9].map((wanted) => choosePrefillEngines(enginesOf(4), wanted).size)).toEqual([0, 1, 3, 3, 3]);
    expect(choosePrefillEngines([], 3).size).toBe(0);
  });

  test("the same ones in whatever order engines are known; one engine more or less changes one assignment at most", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 60 }),
        fc.integer({ min: 1, max: 60 }),
        fc.integer(),
        (count, wanted, seed) => {
          const random = createSeededRandom(seed);
          const engines = enginesOf(count);
          const chosen = choosePrefillEngines(engines, wanted);
          const shuffled = [...engines].sort(() => random.float() - 0.5);
          expect(choosePrefillEngines(shuffled, wanted)).toEqual(chosen);
          expect(chosen.size).toBe(Math.min(wanted, count - 1));
          const gone = engines[random.integer(count)]!;
          const left = choosePrefillEngines(
            engines.filter((engine) => engine !== gone),
            wanted,
          );
          const changed = engines.filter(({ id }) => id !== gone.id && chosen.has(id) !== left.has(id));
          expect(changed.length).toBeLessThanOrEqual(1);
          const more = choosePrefillEngines(engines, wanted + 1);
          for (const id of chosen) expect(more.has(id)).toBe(true);
        },
      ),
    );
  });

  test("names that resemble each other are not neighbours: of racks of four, no rack has all of them", () => {
    const racks = Array.from({ length: 16 }, (_, at) => ({
      id: `rack-${Math.floor(at / 4)}-engine-${at % 4}`,
      role: "both" as const,
    }));
    const chosen = [...choosePrefillEngines(racks, 8)];
    expect(new Set(chosen.map((id) => id.slice(0, 6))).size).toBeGreaterThanOrEqual(3);
  });
});

describe("role assignment", () => {
  test("there are none at first; then every engine of role both has one, and those of other roles have none", () => {
    const { clock, advance } = createVirtualTime();
    const assignment = createRoleAssignment(clock);
    const engines = [...enginesOf(4), ...enginesOf(1, "decode", 4), ...enginesOf(1, "prefill", 5)];
    const look = (share: number) =>
      assignment.update(
        () => engines,
        () => share,
      );
    look(0.5);
    expect(engines.map((engine) => assignment.assignedRoleOf(engine))).toEqual(engines.map(() => undefined));
    expect(engines.every((engine) => assignment.allows(engine, "prefill") && assignment.allows(engine, "decode"))).toBe(
      true,
    );
    expect(assignment.prefillCount).toBeUndefined();
    advance(prefillCountSettleMs);
    look(0.5);
    expect(assignment.prefillCount).toBe(3);
    const given = engines.map((engine) => assignment.assignedRoleOf(engine));
    expect(given.slice(0, 4).sort()).toEqual(["decode", "decode", "prefill", "prefill"]);
    expect(given.slice(4)).toEqual([undefined, undefined]);
    for (const engine of engines.slice(0, 4)) {
      const role = assignment.assignedRoleOf(engine)!;
      expect(assignment.allows(engine, role)).toBe(true);
      expect(assignment.allows(engine, role === "prefill" ? "decode" : "prefill")).toBe(false);
    }
  });

  test("engines are looked at once a second, however often it is asked", () => {
    const { clock, advance } = createVirtualTime();
    const assignment = createRoleAssignment(clock);
    let looks = 0;
    const engines = () => {
      looks += 1;
      return enginesOf(2);
    };
    for (let asked = 0; asked < 1_000; asked++) {
      assignment.update(engines, () => 0.5);
      advance(10);
    }
    expect(looks).toBe(10);
  });
});

describe("work", () => {
  test("a worked example: long prompts take their pairs, and answers the memory that they fill", () => {
    const rates = { prefillMsPerToken: 0.08, prefillMsPerTokenPair: 1.5e-6 };
    expect(promptWorkMs(rates, { promptTokens: 20_000, uncachedTokens: 20_000 })).toBeCloseTo(1_600 + 300, 9);
    // Half of it cached: the rest attends to all that is before it.
    expect(promptWorkMs(rates, { promptTokens: 20_000, uncachedTokens: 10_000 })).toBeCloseTo(800 + 225, 9);
    const balance = createRoleBalance({ clock: createVirtualTime().clock });
    balance.observe({ uncachedTokens: 20_000, outputTokens: 400, prefillMs: 1_900, heldMs: 600 });
    // 400 tokens are 200 ms of a full batch, and as much memory as a quarter more than a second of a full engine's.
    expect(balance.work()).toEqual({ prefillMs: 1_900, decodeMs: 1_000 });
    balance.observe({ uncachedTokens: 0, outputTokens: 2_000, heldMs: Number.NaN });
    expect(balance.work()).toEqual({ prefillMs: 1_900, decodeMs: 2_000 });
  });

  test("what others have seen counts as one's own", () => {
    const { clock } = createVirtualTime();
    const balance = createRoleBalance({ clock, others: () => ({ prefillMs: 300, decodeMs: 0 }) });
    expect(balance.prefillShare()).toBe(1);
    balance.observe({ uncachedTokens: 0, outputTokens: 200 });
    expect(balance.prefillShare()).toBe(0.75);
    expect(balance.work()).toEqual({ prefillMs: 0, decodeMs: 100 });
  });
});
