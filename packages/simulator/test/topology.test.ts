import { describe, expect, test } from "vitest";
import { defaultTiming } from "../src/run.ts";
import { createClientRegions, ownersOf, placeFleet, type Topology } from "../src/topology.ts";

/** Three regions: two engines for each one of the second region, and one router each but for the last. */
const threeRegions: Topology = {
  regions: [
    { name: "a", engines: 2, routers: 1 },
    { name: "b", engines: 1, routers: 1 },
    { name: "c", engines: 2, routers: 0 },
  ],
  delaysMs: [
    [1, 30, 70],
    [30, 1, 100],
    [70, 100, 1],
  ],
  clients: [{ atS: 0, shares: [1, 0, 0] }],
};

const place = (engines: number, routers: number, topology = threeRegions) =>
  placeFleet(topology, { engines, routers }, defaultTiming);

describe("a fleet", () => {
  test("is dealt to the regions in their parts, again and again", () => {
    expect(place(5, 2)).toMatchObject({ engines: [0, 0, 1, 2, 2], routers: [0, 1] });
    expect(place(11, 3)).toMatchObject({ engines: [0, 0, 1, 2, 2, 0, 0, 1, 2, 2, 0], routers: [0, 1, 0] });
  });

  test("of one router has it in the first region with routers", () => {
    const regions = threeRegions.regions.map((region, at) => ({ ...region, routers: at === 1 ? 1 : 0 }));
    expect(place(5, 1).routers).toEqual([0]);
    expect(place(5, 1, { ...threeRegions, regions }).routers).toEqual([1]);
  });

  test("has clients a hop away from routers of their region, and the way between regions farther from others", () => {
    const far = place(5, 2);
    expect(far.clientDelayMs(0, 0)).toBe(defaultTiming.hopDelayMs);
    expect(far.clientDelayMs(2, 0)).toBe(70 + defaultTiming.hopDelayMs);
    const { clientDelayMs } = place(5, 2, { ...threeRegions, clientDelayMs: 18 });
    expect([clientDelayMs(1, 1), clientDelayMs(1, 2)]).toEqual([18, 118]);
  });

  test("has engines that belong to routers of their region, and to all where it has none", () => {
    const owners = place(5, 4);
    expect(owners.routers).toEqual([0, 1, 0, 1]);
    expect([0, 2, 4].map((engine) => ownersOf(owners, engine))).toEqual([
      [0, 2],
      [1, 3],
      [0, 1, 2, 3],
    ]);
  });

  test("cannot have an impossible topology", () => {
    expect(() => place(5, 2, { ...threeRegions, delaysMs: [] })).toThrow(
      new RangeError("the topology's delaysMs must have 3 rows"),
    );
  });
});

describe("sessions", () => {
  const startedAt = (topology: Pick<Topology, "clients">, atS: number, seed = 1): number[] => {
    const regionOf = createClientRegions(topology, seed);
    const counts = [0, 0, 0];
    for (let session = 0; session < 2_000; session++) counts[regionOf(session, atS * 1_000)]! += 1 / 20;
    return counts;
  };

  test("start in regions by their shares at that time", () => {
    const clients = [
      { atS: 10, shares: [7, 2, 1] },
      { atS: 20, shares: [0, 0.5, 0.5] },
    ];
    const near = (percents: readonly number[]) => percents.map((percent) => expect.closeTo(percent, -0.8));
    expect(startedAt({ clients }, 0)).toEqual(near([70, 20, 10]));
    expect(startedAt({ clients }, 10)).toEqual(near([70, 20, 10]));
    expect(startedAt({ clients }, 15)).toEqual(near([35, 35, 30]));
    const late = startedAt({ clients }, 99);
    expect(late).toEqual(near([0, 50, 50]));
    expect(late[0]).toBe(0);
  });

  test("stay in their region, and begin in the same one in every run of a seed", () => {
    const clients = [
      { atS: 0, shares: [1, 1, 0] },
      { atS: 1, shares: [0, 0, 1] },
    ];
    const regionOf = createClientRegions({ clients }, 3);
    const again = createClientRegions({ clients }, 3);
    const other = createClientRegions({ clients }, 4);
    const sessions = Array.from({ length: 40 }, (_, session) => session);
    const begun = sessions.map((session) => regionOf(session, 0));
    expect(sessions.map((session) => regionOf(session, 5_000))).toEqual(begun);
    expect(sessions.toReversed().map((session) => again(session, 0))).toEqual(begun.toReversed());
    expect(sessions.map((session) => other(session, 0))).not.toEqual(begun);
  });
});
