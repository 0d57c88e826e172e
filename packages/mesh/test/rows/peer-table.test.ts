import { asRouterId } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { isLater, type Origin, PeerRows, PeerTable } from "../../src/index.ts";

interface Row {
  readonly key: string;
  readonly origin: Origin;
  readonly counter: number;
}

const originOf = (router: string, epoch = 1): Origin => ({ router: asRouterId(router), epoch });

function createTable(laterEpochReplaces: "all" | "key", { maxPeers = 8, leaseMs = 100 } = {}) {
  const time = createVirtualTime();
  const left: string[] = [];
  const { clock } = time;
  const table = new PeerTable<PeerRows<string, Row>>({
    ...{ clock, maxPeers, leaseMs, laterEpochReplaces },
    begin: (origin) => new PeerRows(origin, ({ key }) => left.push(key)),
  });
  /** Takes a row if it is later than the one under its key. @returns undefined for an epoch or router without a place */
  const take = (origin: Origin, counter: number, key = "k", relayedAgeMs?: number): boolean | undefined => {
    const peer = table.of(origin);
    if (!peer) return undefined;
    peer.hear({ origin, counter, relayedAgeMs }, clock.nowMs());
    const known = peer.rows.get(key);
    if (known && !isLater({ origin, counter }, known)) return false;
    peer.rows.set(key, { key, origin, counter });
    return true;
  };
  const rows = (): string[] =>
    [...table].flatMap((peer) =>
      [...peer.rows.values()].map(({ key, origin, counter }) => `${origin.router}${origin.epoch} ${key} ${counter}`),
    );
  return { time, table, left, take, rows };
}

describe("a later epoch of a router", () => {
  test("that replaces all removes each row of the earlier one, which is never taken again", () => {
    const { take, rows, left } = createTable("all");
    take(originOf("a"), 7, "x");
    take(originOf("a"), 8, "y");
    take(originOf("b"), 1, "x");
    expect(take(originOf("a", 2), 1, "x")).toBe(true);
    expect(left).toEqual(["x", "y"]);
    expect(take(originOf("a"), 9, "y")).toBeUndefined();
    expect(rows().sort()).toEqual(["a2 x 1", "b1 x 1"]);
  });

  test("that replaces by key outranks the earlier one under that key, whatever the counters and the order", () => {
    const reports = [
      [originOf("a"), 7, "x"],
      [originOf("a"), 8, "y"],
      [originOf("a", 2), 1, "x"],
    ] as const;
    for (const order of [reports, reports.toReversed()]) {
      const { take, rows } = createTable("key");
      for (const [origin, counter, key] of order) take(origin, counter, key);
      expect(rows().sort()).toEqual(["a1 y 8", "a2 x 1"]);
    }
  });

  test("is the one whose frames count for how far a router was heard", () => {
    const { time, table, take } = createTable("key");
    take(originOf("a", 2), 3);
    time.advance(50);
    take(originOf("a"), 9);
    expect(table.get(asRouterId("a"))).toMatchObject({ origin: originOf("a", 2), counter: 3, heardMs: 0 });
    take(originOf("a", 3), 1);
    expect(table.get(asRouterId("a"))).toMatchObject({ origin: originOf("a", 3), counter: 1, heardMs: 50 });
  });
});

describe("a lease", () => {
  test("runs from the last frame with news: neither a repeated nor a relayed one renews it", () => {
    const { time, table, take, rows, left } = createTable("all");
    take(originOf("a"), 1);
    time.advance(60);
    take(originOf("a"), 1);
    take(originOf("a"), 2, "k", 60);
    time.advance(40);
    table.expire();
    expect(rows()).toEqual(["a1 k 2"]);
    time.advance(1);
    table.expire();
    expect([rows(), left]).toEqual([[], ["k"]]);
  });

  test("that runs keeps the place of its router; of those that ended the one silent for longest gives its own", () => {
    const { time, take, rows } = createTable("all", { maxPeers: 2 });
    take(originOf("a"), 1);
    time.advance(10);
    take(originOf("b"), 1);
    time.advance(90);
    expect(take(originOf("c"), 1)).toBeUndefined();
    time.advance(20);
    expect(take(originOf("c"), 1)).toBe(true);
    expect(rows()).toEqual(["b1 k 1", "c1 k 1"]);
    expect(take(originOf("b"), 2)).toBe(true);
  });

  test("spares the router that a place is sought for", () => {
    const { time, table, take, rows } = createTable("all");
    take(originOf("a"), 1);
    take(originOf("b"), 1);
    time.advance(101);
    const asking = table.get(asRouterId("a"))!;
    expect([table.evict(asking), table.evict(asking), rows()]).toEqual([true, false, ["a1 k 1"]]);
  });
});
