import { asRouterId, createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { Link } from "../../src/link/link.ts";
import { OwnRecord } from "../../src/membership/gossip.ts";
import type { MemberClaim, MemberRecord } from "../../src/membership/member-table.ts";
import { MemberTable } from "../../src/membership/member-table.ts";
import { defaultMembershipLimits as limits } from "../../src/membership/membership.ts";

const seeds = fixedSeeds(40);
const link = {} as Link;

function recordOf(name: string, incarnation: number, more: Partial<MemberRecord> = {}): MemberRecord {
  const origin = { router: asRouterId(name), epoch: 1 };
  return { origin, incarnation, hasLeft: false, isDraining: false, address: "", unreachable: [], links: [], ...more };
}

function shuffled<T>(list: readonly T[], random: Random): T[] {
  return list
    .map((item) => ({ item, place: random.float() }))
    .sort((a, b) => a.place - b.place)
    .map(({ item }) => item);
}

describe("a table", () => {
  test.each(seeds)("has the latest record of each router, in whatever order they came (seed %d)", (seed) => {
    const random = createSeededRandom(seed);
    const records = Array.from({ length: 60 }, () => {
      const name = `r${random.integer(6)}`;
      const incarnation = 1 + random.integer(10);
      // One author says one thing under one incarnation.
      return recordOf(name, incarnation, { address: `${name}-${incarnation}:1` });
    });
    const tables = [records, shuffled(records, random)].map((order) => {
      const table = new MemberTable(limits);
      for (const record of order) table.merge(record, undefined, 0);
      return [...table.entries.values()].map(({ record }) => record).sort((a, b) => (a.address < b.address ? -1 : 1));
    });
    expect(tables[1]).toEqual(tables[0]);
    for (const { origin, incarnation } of tables[0]!) {
      const all = records.filter((record) => record.origin.router === origin.router);
      expect(incarnation).toBe(Math.max(...all.map((record) => record.incarnation)));
    }
  });

  test.each(seeds)(
    "keeps the same claim in whatever order claims came, if no refutation is among them (seed %d)",
    (seed) => {
      const random = createSeededRandom(seed);
      const states = ["suspect", "down"] as const;
      const claims: MemberClaim[] = Array.from({ length: 12 }, () => ({
        origin: { router: asRouterId("a"), epoch: 1 },
        incarnation: random.integer(6),
        state: states[random.integer(2)]!,
      }));
      const kept = [claims, shuffled(claims, random), claims.toReversed()].map((order) => {
        const table = new MemberTable(limits);
        table.merge(recordOf("a", 3), undefined, 0);
        const entry = table.entries.get(asRouterId("a"))!;
        entry.state = table.evaluate(entry, true, 0, 1);
        let taken = 0;
        for (const claim of order) if (table.claim(claim, asRouterId("p"), 0)) taken++;
        // A claim is passed on when it is taken, so each may be taken at most once for each incarnation and state.
        expect(taken).toBeLessThanOrEqual(6);
        return entry.claim;
      });
      expect(kept[1]).toEqual(kept[0]);
      expect(kept[2]).toEqual(kept[0]);
      const worthy = claims.filter(({ incarnation }) => incarnation >= 3);
      const latest = Math.max(...worthy.map(({ incarnation }) => incarnation));
      expect(kept[0]?.incarnation).toBe(worthy.length > 0 ? latest : undefined);
    },
  );

  test.each(seeds)("reaches whom a search over the links finds, those who left apart (seed %d)", (seed) => {
    const random = createSeededRandom(seed);
    const names = Array.from({ length: 20 }, (_, at) => `r${at}`);
    const table = new MemberTable(limits);
    for (const name of names) {
      const links = names.filter(() => random.integer(14) === 0).concat("self", "stranger");
      table.merge(recordOf(name, 1, { links, hasLeft: random.integer(6) === 0 }), undefined, 0);
      const entry = table.entries.get(asRouterId(name))!;
      if (random.integer(8) === 0) entry.link = link;
      if (random.integer(8) === 0) entry.vouchedUntilMs = random.integer(2) * 2_000;
    }
    const found = new Set<string>();
    const visit = (name: string): void => {
      const entry = table.entries.get(asRouterId(name));
      if (!entry || entry.record.hasLeft || found.has(name)) return;
      found.add(name);
      for (const next of entry.record.links) visit(next);
    };
    for (const [name, entry] of table.entries) if (entry.link || entry.vouchedUntilMs > 1_000) visit(name);
    expect([...table.reachable(1_000)].sort()).toEqual([...found].sort());
  });
});

describe("what a router says of itself", () => {
  const makeOwn = (address?: string) => {
    const origin = { router: asRouterId("me"), epoch: 3 };
    return new OwnRecord(
      () => origin,
      () => address,
    );
  };

  test("is under a higher incarnation every time, and higher than any that it heard of", () => {
    const own = makeOwn();
    expect([own.next([]).incarnation, own.next([]).incarnation]).toEqual([1, 2]);
    own.answer(40);
    own.answer(7);
    expect(own.next([]).incarnation).toBe(41);
  });

  test("names as many links as a record holds, the first by name", () => {
    const links = Array.from({ length: 65 }, (_, at) => asRouterId(`r${String(at).padStart(2, "0")}`));
    const { links: reported } = makeOwn().next(links.toReversed());
    expect(reported).toEqual(links.slice(0, 64));
  });

  test("is news only when it is not what it said before", () => {
    const own = makeOwn(undefined);
    expect([own.setDraining(false), own.setDraining(true), own.setDraining(true)]).toEqual([false, true, false]);
    const news = [["b", "a"], ["a", "b"], ["a", "a", "b"], ["a"], [], []].map((targets) => own.setUnreachable(targets));
    expect(news).toEqual([true, false, false, true, true, false]);
    own.leave();
    expect(own.next([])).toMatchObject({ hasLeft: true, isDraining: true, address: "", unreachable: [] });
  });
});
