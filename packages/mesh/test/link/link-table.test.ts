import { asRouterId } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { Link } from "../../src/link/link.ts";
import { type Candidate, type DialedBy, LinkTable } from "../../src/link/link-table.ts";

function makeTable({ self = "m", maxPeers = 3, known = 0 } = {}) {
  const time = createVirtualTime();
  const table = new LinkTable({
    clock: time.clock,
    limits: { maxPeers, silentMs: 1_500 },
    self: () => asRouterId(self),
    highestEpoch: () => known,
  });
  const link = (router: string, epoch = 1): Link => ({
    peer: { origin: { router: asRouterId(router), epoch }, address: undefined, version: 1 },
    send: () => true,
    bufferedBytes: 0,
    waitingBytes: () => 0,
    roundTripMs: Number.NaN,
    stats: {
      sentBytes: 0,
      receivedBytes: 0,
      sentFrames: 0,
      receivedFrames: 0,
      droppedFrames: 0,
      lastHeardMs: time.clock.nowMs(),
    },
    close: () => {},
  });
  return { time, table, link };
}

const candidate = (router: string, dialedBy: DialedBy, epoch = 1): Candidate => ({
  peer: { origin: { router: asRouterId(router), epoch }, address: undefined, version: 1 },
  dialedBy,
});

const verdictOf = (table: LinkTable, which: Candidate): string => {
  const verdict = table.verdictOn(which);
  if (verdict === undefined) return "taken";
  return verdict === "replaced" ? verdict : verdict.reason;
};

describe("of two connections to the same epoch of a router", () => {
  test.each<[string, DialedBy, DialedBy, string]>([
    // The other one has the lower id: what it has dialed is kept.
    ["a", "them", "us", "replaced"],
    ["a", "us", "them", "taken"],
    // This one has the lower id.
    ["z", "us", "them", "replaced"],
    ["z", "them", "us", "taken"],
    // Who dials again has given up the first; who is asked whether to dial again has not.
    ["a", "them", "them", "taken"],
    ["a", "us", "us", "replaced"],
    ["z", "them", "them", "taken"],
    ["z", "us", "us", "replaced"],
  ])("with %s: one that %s dialed, then one that %s did: %s", (router, first, second, verdict) => {
    const linked = makeTable();
    linked.table.put(linked.link(router), first);
    expect(verdictOf(linked.table, candidate(router, second))).toBe(verdict);
    linked.time.advance(1_499);
    expect(verdictOf(linked.table, candidate(router, second))).toBe(verdict);
    linked.time.advance(1);
    expect(verdictOf(linked.table, candidate(router, second))).toBe("taken");
    if (first === "us") return;
    const agreed = makeTable();
    const waiting = candidate(router, first);
    agreed.table.agree(waiting);
    expect(verdictOf(agreed.table, candidate(router, second))).toBe(verdict);
    expect(verdictOf(agreed.table, waiting)).toBe("taken");
    agreed.table.settle(waiting);
    expect(verdictOf(agreed.table, candidate(router, second))).toBe("taken");
  });

  test("both ends keep the same one, in whatever order they see them", () => {
    for (const order of [
      ["us", "them"],
      ["them", "us"],
    ] as const) {
      const here = makeTable({ self: "a" });
      const there = makeTable({ self: "b" });
      const flip = (by: DialedBy): DialedBy => (by === "us" ? "them" : "us");
      const kept = (rig: ReturnType<typeof makeTable>, router: string, dials: readonly DialedBy[]): DialedBy => {
        let last: DialedBy = "us";
        for (const by of dials) {
          if (rig.table.verdictOn(candidate(router, by)) !== undefined) continue;
          rig.table.put(rig.link(router), by);
          last = by;
        }
        return last;
      };
      const keptHere = kept(here, "b", order);
      const keptThere = kept(there, "a", [...order].reverse());
      expect(keptHere).toBe("us");
      expect(flip(keptThere)).toBe(keptHere);
    }
  });
});

describe("another epoch of a router", () => {
  test.each([0, 2, 5])("(epoch %d against 3) is refused while the first one is heard", (epoch) => {
    const { table, link } = makeTable();
    table.put(link("a", 3), "us");
    expect(verdictOf(table, candidate("a", "them", epoch))).toBe("router-id-taken");
  });

  test("takes the place of a silent one when it is newer, and is told the epoch when it is older", () => {
    const { table, link, time } = makeTable();
    table.put(link("a", 3), "us");
    time.advance(1_500);
    expect(verdictOf(table, candidate("a", "them", 4))).toBe("taken");
    expect(table.verdictOn(candidate("a", "them", 2))).toMatchObject({ reason: "epoch-behind", knownEpoch: 3 });
  });

  test("is told the highest epoch that anybody knows", () => {
    const { table } = makeTable({ known: 9 });
    expect(table.verdictOn(candidate("a", "us", 8))).toMatchObject({ reason: "epoch-behind", knownEpoch: 9 });
    expect(verdictOf(table, candidate("a", "us", 9))).toBe("taken");
  });
});

describe("the number of routers", () => {
  test("is bounded, those included that have not agreed yet; a known router is never one too many", () => {
    const { table, link } = makeTable();
    const waiting = candidate("c", "them");
    table.put(link("a"), "us");
    table.put(link("b"), "us");
    table.agree(waiting);
    expect(verdictOf(table, candidate("d", "us"))).toBe("too-many-peers");
    expect(verdictOf(table, waiting)).toBe("taken");
    expect(verdictOf(table, candidate("c", "them"))).toBe("taken");
    expect(verdictOf(table, candidate("a", "them"))).toBe("taken");
    table.settle(waiting);
    expect(verdictOf(table, candidate("d", "us"))).toBe("taken");
  });
});

test("a link that was replaced does not take its successor along when it ends", () => {
  const { table, link } = makeTable();
  const [first, second] = [link("a"), link("a")];
  expect(table.put(first, "us")).toBeUndefined();
  expect(table.put(second, "them")).toBe(first);
  table.remove(first);
  expect([table.size, table.has(asRouterId("a")), table.all()]).toEqual([1, true, [second]]);
  table.remove(second);
  expect([table.size, table.has(asRouterId("a"))]).toEqual([0, false]);
});
