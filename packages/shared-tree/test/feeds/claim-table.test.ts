import { createSeededRandom, silentMeter } from "@espalier/core";
import { type Origin, originKey } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { FeedClaim } from "../../src/feeds/feed-claim.ts";
import { FeedTable, prevailing } from "../../src/feeds/feed-table.ts";
import { claimOf, originOf } from "../documents/journal-fixtures.ts";

/** The claims of a table of feeds. */
class ClaimTable {
  readonly #feeds = new FeedTable({
    ...{ fold: { state: () => undefined }, slots: { keyOf: () => undefined } },
    ...{ self: () => originOf("self"), clock: createVirtualTime().clock, meter: silentMeter },
  });

  set(origin: Origin, target: string, claim: FeedClaim | undefined): void {
    this.#feeds.claimChanged(origin, target, claim);
  }

  dropOrigin(origin: Origin): readonly string[] {
    const reported: string[] = [];
    const cancel = this.#feeds.onClaims((target) => reported.push(target));
    this.#feeds.dropOrigin(origin);
    cancel();
    return reported;
  }

  of(target: string) {
    return this.#feeds.claimsOf(target);
  }

  holder(target: string, counts: (origin: Origin) => boolean) {
    return prevailing(this.of(target), ({ origin }) => counts(origin));
  }

  targets(): string[] {
    return Array.from(this.#feeds.all(), ({ target }) => target);
  }
}

const everybody = () => true;

/** The router whose claim holds, as a text. */
function holderOf(table: ClaimTable, target: string, counts: (origin: Origin) => boolean = everybody): string | null {
  const held = table.holder(target, counts);
  return held ? originKey(held.origin) : null;
}

describe("the claim that holds", () => {
  test.each<[string, string, readonly (readonly [Origin, number])[]]>([
    ["is the only one", "a@1", [[originOf("a"), 5]]],
    [
      "is the later one",
      "b@1",
      [
        [originOf("a"), 5],
        [originOf("b"), 6],
      ],
    ],
    [
      "is the later one in whatever order they come",
      "b@1",
      [
        [originOf("b"), 6],
        [originOf("a"), 5],
      ],
    ],
    [
      "is that of the lower router among equals",
      "a@1",
      [
        [originOf("b"), 5],
        [originOf("a"), 5],
        [originOf("c"), 5],
      ],
    ],
    [
      "is what a router said last, though it is earlier",
      "b@1",
      [
        [originOf("a"), 9],
        [originOf("b"), 6],
        [originOf("a"), 5],
      ],
    ],
    [
      "is the later one of two epochs of a router",
      "a@2",
      [
        [originOf("a", 1), 5],
        [originOf("a", 2), 6],
      ],
    ],
  ])("%s", (_what, holder, posted) => {
    const table = new ClaimTable();
    for (const [origin, stamp] of posted) table.set(origin, "engine", claimOf("engine", stamp));
    expect(holderOf(table, "engine")).toBe(holder);
  });

  test("is chosen among those that count, and is none where none counts", () => {
    const table = new ClaimTable();
    for (const [router, stamp] of [
      ["a", 1],
      ["b", 2],
      ["c", 3],
    ] as const) {
      table.set(originOf(router), "engine", claimOf("engine", stamp));
    }
    expect(holderOf(table, "engine", ({ router }) => router !== "c")).toBe("b@1");
    expect(holderOf(table, "engine", ({ router }) => router === "a")).toBe("a@1");
    expect(holderOf(table, "engine", () => false)).toBeNull();
    expect(holderOf(table, "other")).toBeNull();
  });
});

test("a withdrawn claim is gone, and with the last one its target", () => {
  const table = new ClaimTable();
  table.set(originOf("a"), "engine", claimOf("engine", 1));
  table.set(originOf("b"), "engine", claimOf("engine", 2));
  table.set(originOf("b"), "engine", undefined);
  expect(table.of("engine").map(({ claim }) => claim.stamp)).toEqual([1]);
  table.set(originOf("a"), "engine", undefined);
  expect([table.of("engine"), [...table.targets()]]).toEqual([[], []]);
});

test("withdrawing what was never claimed changes nothing", () => {
  const table = new ClaimTable();
  table.set(originOf("a"), "engine", undefined);
  expect([...table.targets()]).toEqual([]);
  table.set(originOf("a"), "engine", claimOf("engine"));
  table.set(originOf("a", 2), "engine", undefined);
  expect(table.of("engine")).toHaveLength(1);
});

test("dropping an origin tells its targets, and leaves other epochs of the same router alone", () => {
  const table = new ClaimTable();
  for (const target of ["x", "y", "z"]) table.set(originOf("a", 1), target, claimOf(target, 1));
  table.set(originOf("a", 2), "x", claimOf("x", 2));
  table.set(originOf("b"), "y", claimOf("y", 3));
  expect([...table.dropOrigin(originOf("a", 1))].sort()).toEqual(["x", "y", "z"]);
  expect([...table.targets()].sort()).toEqual(["x", "y"]);
  expect(holderOf(table, "x")).toBe("a@2");
  expect(table.dropOrigin(originOf("a", 1))).toEqual([]);
});

test.each([1, 2, 3, 4, 5, 6])(
  "any sequence of claims, withdrawals and drops is what a plain list says, seed %i",
  (seed) => {
    const random = createSeededRandom(seed);
    const table = new ClaimTable();
    let plain: { origin: Origin; target: string; stamp: number }[] = [];
    const routers = Array.from({ length: 6 }, (_, number) => originOf(`r${number % 4}`, 1 + (number >> 2)));
    for (let step = 0; step < 400; step++) {
      const origin = routers[random.integer(routers.length)]!;
      const target = `t${random.integer(5)}`;
      const key = originKey(origin);
      if (random.integer(12) === 0) {
        table.dropOrigin(origin);
        plain = plain.filter((each) => originKey(each.origin) !== key);
      } else {
        const stamp = random.integer(8);
        const isClaim = random.integer(3) > 0;
        table.set(origin, target, isClaim ? claimOf(target, stamp) : undefined);
        plain = plain.filter((each) => originKey(each.origin) !== key || each.target !== target);
        if (isClaim) plain.push({ origin, target, stamp });
      }
      const living = new Set(routers.filter(() => random.integer(3) > 0).map(originKey));
      const [best] = plain
        .filter((each) => each.target === target && living.has(originKey(each.origin)))
        .sort((one, other) => other.stamp - one.stamp || (one.origin.router < other.origin.router ? -1 : 1));
      const held = table.holder(target, (each) => living.has(originKey(each)));
      expect([held?.claim.stamp, held?.origin.router]).toEqual([best?.stamp, best?.origin.router]);
      expect(new Set(table.targets())).toEqual(new Set(plain.map((each) => each.target)));
    }
  },
);
