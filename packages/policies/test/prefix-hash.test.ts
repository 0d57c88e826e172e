import { createSeededRandom } from "@espalier/core";
import { createPolicy, hashString } from "@espalier/policies";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { anyRequest, byKey, candidatesOf, chiSquareExcess, idleRows, withPrefix } from "./helpers.ts";

const random = createSeededRandom(31);
const keys = (count: number): number[] => Array.from({ length: count }, (_, i) => hashString(`prompt ${i}`, 9));
const unbounded = () => createPolicy("prefix_hash", { "load-factor": 0 });

function homes(count: number, rows = idleRows(8)): string[] {
  const policy = unbounded();
  const candidates = candidatesOf(rows);
  return keys(count).map((key) => candidates.key[policy.choose(withPrefix(key), candidates, random).index]!);
}

test("one beginning stays with one engine, whatever the session, the length and the router", () => {
  const candidates = candidatesOf(idleRows(8));
  for (const key of keys(50)) {
    const home = createPolicy("prefix_hash").choose(withPrefix(key), candidates, random);
    expect(home.reason).toBe("hash");
    const index = home.index;
    for (const sessionKey of ["one", "two", undefined]) {
      const request = { promptTokens: 90_000, expectedOutputTokens: 1, sessionKey, prefixKey: key };
      expect(createPolicy("prefix_hash").choose(request, candidates, createSeededRandom(key)).index).toBe(index);
    }
  }
});

test("homes are part of the contract between versions: these beginnings live here", () => {
  const rows = [{ key: "http://10.0.0.1:8000" }, { key: "http://10.0.0.2:8000" }, { key: "http://10.0.0.3:8000" }];
  const policy = createPolicy("prefix_hash");
  const places = [0, 1, 2, 3, 2 ** 31, 2 ** 32 - 1, 0xdeadbeef, 77].map(
    (key) => policy.choose(withPrefix(key), candidatesOf(rows), random).index + 1,
  );
  expect(places).toMatchInlineSnapshot(`
    [
      2,
      2,
      3,
      3,
      1,
      1,
      3,
      1,
    ]
  `);
});

test("keys that differ little spread as evenly as any: the bits of a key may be of poor quality", () => {
  const counts = new Map<number, number>();
  const policy = createPolicy("prefix_hash", { "load-factor": 0, "points-per-weight": 4_096 });
  const candidates = candidatesOf(idleRows(4));
  const count = (key: number, into: Map<number, number>, by: number): void => {
    const { index } = policy.choose(withPrefix(key), candidates, random);
    into.set(index, (into.get(index) ?? 0) + by);
  };
  for (let key = 0; key < 8_000; key++) count(key * 65_536, counts, 1);
  // Against the shares that the ring really has, taken with keys of good quality, so that only the keys are tested.
  const shares = new Map<number, number>();
  for (const key of keys(80_000)) count(key, shares, 0.1);
  const engines = [0, 1, 2, 3];
  const observed = engines.map((index) => counts.get(index)!);
  expect(
    chiSquareExcess(
      observed,
      engines.map((index) => shares.get(index)!),
    ),
  ).toBeLessThan(1.2);
});

test("a new engine takes its share of the beginnings and moves no other", () => {
  const before = homes(3_000);
  const after = homes(3_000, [...idleRows(8), { key: "new" }]);
  const moved = after.filter((key, i) => key !== before[i]);
  expect(new Set(moved)).toEqual(new Set(["new"]));
  expect(Math.abs(moved.length / 3_000 - 1 / 9)).toBeLessThan(0.04);
});

describe("the load bound", () => {
  const key = 0x1234abcd;
  const policy = createPolicy("prefix_hash");
  const ordered = (() => {
    const explanation = policy.explain(withPrefix(key), candidatesOf(idleRows(4)));
    return [...explanation.candidates].sort((a, b) => a.terms.walk_order! - b.terms.walk_order!).map((one) => one.key);
  })();

  // The bound is ceil(1.25 x (total + 1) / 4).
  test.each([
    [[0, 0, 0, 0], 0, "hash"],
    [[6, 5, 5, 4], 0, "hash"],
    [[7, 6, 4, 3], 1, "hash_overflow"],
    [[8, 8, 8, 0], 3, "hash_overflow"],
  ] as const)("with %j in flight along the walk, number %i is taken by %s", (loads, place, reason) => {
    const candidates = candidatesOf(ordered.map((name, i) => ({ key: name, inFlight: loads[i]! })));
    const choice = policy.choose(withPrefix(key), candidates, random);
    expect([ordered.indexOf(candidates.key[choice.index]!), choice.reason]).toEqual([place, reason]);
  });

  test("one hot beginning never takes an engine above 1.25 times its share", () => {
    const candidates = candidatesOf(idleRows(6));
    for (let total = 0; total < 300; total++) {
      const { index } = policy.choose(withPrefix(key), candidates, random);
      candidates.inFlight[index]! += 1;
      expect(candidates.inFlight[index]!).toBeLessThanOrEqual(Math.ceil((1.25 * (total + 1)) / 6));
    }
    // And it takes no more engines than the bound makes it.
    expect([...candidates.inFlight.subarray(0, 6)].filter((load) => load > 0).length).toBeLessThan(6);
  });
});

test("a prompt without a key goes to the least loaded", () => {
  const policy = createPolicy("prefix_hash");
  const candidates = candidatesOf([
    { key: "a", inFlight: 2 },
    { key: "b", inFlight: 1 },
    { key: "c", inFlight: 1 },
  ]);
  const request = { ...anyRequest, sessionKey: "a session is no prefix" };
  expect(policy.choose(request, candidates, random).reason).toBe("no_prefix_key");
  expect(byKey(policy.explain(request, candidates))).toEqual({ a: 0, b: 0.5, c: 0.5 });
});

test("every unsigned 32-bit number is a key, 0 among them", () => {
  const policy = createPolicy("prefix_hash");
  const candidates = candidatesOf(idleRows(5));
  fc.assert(
    fc.property(fc.constantFrom(0, 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1), (key) => {
      expect(policy.choose(withPrefix(key), candidates, random).reason).toBe("hash");
    }),
  );
});
