import { describe, expect, test } from "vitest";
import { sharings } from "../../src/run.ts";
import { chainOf, promptOf, tierRig } from "./tier-rig.ts";

const chain = chainOf(1, 10);
const prompt = promptOf(chain);

describe("facts", () => {
  const waitsMs = { oracle: 5, "events-only": 5, mesh: 35, "gossip-1s": 1_002 } as const;

  for (const [sharing, waitMs] of Object.entries(waitsMs) as [keyof typeof waitsMs, number][]) {
    test(`reach all routers of ${sharing} after ${waitMs} ms`, async () => {
      const { time, engines, routers } = await tierRig(sharing);
      engines[1]!.tell("stored", chain, 0, 8);
      time.advance(waitMs - 0.5);
      for (const router of routers) expect(router.sees(1, prompt)).toBe(0);
      time.advance(0.5);
      for (const router of routers) {
        expect([0, 1, 2].map((engine) => router.sees(engine, prompt))).toEqual([0, 8, 0]);
        expect(router.ageMs(1, prompt)).toBeNaN();
      }
    });

    test(`that are taken back go at ${sharing} after ${waitMs} ms`, async () => {
      const { time, engines, routers } = await tierRig(sharing);
      engines[1]!.tell("stored", chain, 0, 8);
      engines[2]!.tell("stored", chain, 0, 8);
      time.advance(3_000);
      engines[1]!.tell("removed", chain, 5, 8);
      engines[2]!.tell("cleared", chain, 0, 0);
      time.advance(waitMs - 0.5);
      for (const router of routers) expect([router.sees(1, prompt), router.sees(2, prompt)]).toEqual([8, 8]);
      time.advance(0.5);
      for (const router of routers) expect([router.sees(1, prompt), router.sees(2, prompt)]).toEqual([5, 0]);
    });

    test(`of an engine that runs anew go at ${sharing} after ${waitMs} ms, and those of its new epoch stay`, async () => {
      const { time, engines, routers } = await tierRig(sharing);
      engines[1]!.tell("stored", chain, 0, 8);
      time.advance(3_000);
      engines[1]!.kill();
      engines[1]!.start();
      engines[1]!.tell("stored", chain, 0, 3);
      time.advance(waitMs - 0.5);
      for (const router of routers) expect(router.sees(1, prompt)).toBe(8);
      time.advance(0.5);
      for (const router of routers) expect(router.sees(1, prompt)).toBe(3);
    });
  }

  test("wait for the engine alone where a router is alone", async () => {
    for (const sharing of ["mesh", "gossip-1s"] as const) {
      const { time, engines, routers } = await tierRig(sharing, 1);
      engines[0]!.tell("stored", chain, 0, 4);
      time.advance(4.5);
      expect(routers[0]!.sees(0, prompt)).toBe(0);
      time.advance(0.5);
      expect(routers[0]!.sees(0, prompt)).toBe(4);
    }
  });

  test("reach nobody where engines tell nothing", async () => {
    const { time, engines, routers } = await tierRig("none");
    engines[1]!.tell("stored", chain, 0, 8);
    time.advance(5_000);
    for (const router of routers) expect(router.sees(1, prompt)).toBe(0);
  });

  test("of several changes in one message hold in their order", async () => {
    const { time, engines, routers } = await tierRig("mesh");
    const words = Uint32Array.from([...chain.slice(0, 12), ...chain.slice(8, 12), ...chain.slice(8, 10)]);
    engines[0]!.publish({ runs: 3, kinds: Uint8Array.of(0, 1, 0), ends: Uint32Array.of(6, 8, 9), words });
    time.advance(35);
    expect(routers[1]!.sees(0, prompt)).toBe(5);
  });
});

describe("guesses", () => {
  test("of a router are its own at once, whatever is shared", async () => {
    for (const sharing of sharings) {
      const { routers } = await tierRig(sharing);
      routers[0]!.place(2, prompt);
      expect(routers[0]!.sees(2, prompt)).toBe(10);
      expect(routers[0]!.ageMs(2, prompt)).toBe(0);
      expect(routers[0]!.sees(1, prompt)).toBe(0);
    }
  });

  test.each([
    ["oracle", 0],
    ["mesh", 30],
    ["gossip-1s", 1_002],
  ] as const)("of routers of %s reach the others after %d ms", async (sharing, waitMs) => {
    const { time, routers } = await tierRig(sharing, 3);
    routers[0]!.place(2, prompt);
    if (waitMs > 0) {
      time.advance(waitMs - 0.5);
      for (const other of [1, 2]) expect(routers[other]!.sees(2, prompt)).toBe(0);
      expect(routers[0]!.sees(2, prompt)).toBe(10);
      time.advance(0.5);
    }
    for (const router of routers) {
      expect(router.sees(2, prompt)).toBe(10);
      expect(router.ageMs(2, prompt)).toBe(waitMs);
    }
  });

  test.each(["none", "events-only"] as const)("of routers of %s stay their own", async (sharing) => {
    const { time, routers } = await tierRig(sharing);
    routers[0]!.place(2, prompt);
    time.advance(5_000);
    expect(routers[0]!.sees(2, prompt)).toBe(10);
    expect(routers[1]!.sees(2, prompt)).toBe(0);
  });

  test("without events last ten minutes", async () => {
    const { time, routers } = await tierRig("none");
    routers[0]!.place(0, prompt);
    time.advance(600_000 - 1);
    expect(routers[0]!.sees(0, prompt)).toBe(10);
    time.advance(1);
    for (const router of routers) expect(router.sees(0, prompt)).toBe(0);
  });

  test("with events last while the prompt waits in the engine, and from the first token for two to ten seconds", async () => {
    const { time, routers } = await tierRig("mesh");
    const placed = routers[0]!.place(0, prompt);
    for (let waitedS = 0; waitedS < 60; waitedS++) {
      time.advance(1_000);
      for (const router of routers) expect(router.sees(0, prompt)).toBe(10);
    }
    placed.computed();
    time.advance(2_000 - 1);
    expect(routers[0]!.sees(0, prompt)).toBe(10);
    time.advance(10_000 - 1_999);
    for (const router of routers) expect(router.sees(0, prompt)).toBe(0);
  });

  test("meet facts as the deeper of both", async () => {
    for (const sharing of ["mesh", "events-only", "oracle"] as const) {
      const { time, engines, routers } = await tierRig(sharing);
      engines[0]!.tell("stored", chain, 0, 6);
      time.advance(3_000);
      routers[0]!.place(0, promptOf(chain, 4));
      expect(routers[0]!.sees(0, prompt)).toBe(6);
      routers[0]!.place(0, promptOf(chain, 9));
      expect(routers[0]!.sees(0, prompt)).toBe(9);
    }
  });
});

describe("guesses that do not hold any more", () => {
  test("that failed go at once for the router, later for the others", async () => {
    const { time, routers } = await tierRig("mesh");
    const [one, other] = routers;
    one!.place(1, promptOf(chain, 4));
    time.advance(100);
    const failed = one!.place(1, prompt, 4 * 16);
    time.advance(100);
    expect(other!.sees(1, prompt)).toBe(10);
    failed.withdraw();
    expect([one!.sees(1, prompt), other!.sees(1, prompt)]).toEqual([4, 10]);
    one!.place(1, promptOf(chain, 7));
    expect(one!.sees(1, prompt)).toBe(7);
    time.advance(29.5);
    expect([one!.sees(1, prompt), other!.sees(1, prompt)]).toEqual([7, 10]);
    time.advance(0.5);
    expect([one!.sees(1, prompt), other!.sees(1, prompt)]).toEqual([7, 7]);
  });

  test("of an engine that runs anew go with its facts, and those that came after stay", async () => {
    for (const sharing of ["mesh", "gossip-1s"] as const) {
      const { time, engines, routers } = await tierRig(sharing);
      routers[0]!.place(1, prompt);
      time.advance(1);
      engines[1]!.kill();
      engines[1]!.start();
      time.advance(10);
      routers[0]!.place(1, promptOf(chain, 3));
      expect(routers[0]!.sees(1, prompt)).toBe(10);
      time.advance(2_000);
      for (const router of routers) expect(router.sees(1, prompt)).toBe(3);
    }
  });

  test("of an engine that runs anew go where they are a router's own", async () => {
    for (const sharing of ["none", "events-only"] as const) {
      const { time, engines, routers } = await tierRig(sharing);
      routers[0]!.place(1, prompt);
      routers[1]!.place(2, prompt);
      engines[1]!.kill();
      engines[1]!.start();
      time.advance(5);
      expect(routers[0]!.sees(1, prompt)).toBe(0);
      expect(routers[1]!.sees(2, prompt)).toBe(10);
    }
  });

  test("that a router forgets are forgotten by it alone", async () => {
    const { time, routers } = await tierRig("mesh");
    const [one, other] = routers;
    other!.place(1, prompt);
    time.advance(50);
    one!.place(2, prompt);
    one!.place(0, prompt);
    one!.view.knowledge.forgetPlacements(one!.target(2).index);
    one!.view.knowledge.forget(one!.target(1).index);
    expect([0, 1, 2].map((engine) => one!.sees(engine, prompt))).toEqual([10, 10, 0]);
    expect([0, 1, 2].map((engine) => other!.sees(engine, prompt))).toEqual([0, 10, 0]);
  });

  test("are forgotten for all where all is one", async () => {
    const { engines, time, routers } = await tierRig("oracle");
    engines[0]!.tell("stored", chain, 0, 2);
    time.advance(10);
    routers[0]!.place(0, prompt);
    routers[0]!.view.knowledge.forgetPlacements(routers[0]!.target(0).index);
    expect(routers[1]!.sees(0, prompt)).toBe(2);
    routers[0]!.view.knowledge.forget(routers[0]!.target(0).index);
    expect(routers[1]!.sees(0, prompt)).toBe(0);
  });

  test("that are made while news waits to be looked at stay", async () => {
    for (const sharing of ["oracle", "events-only"] as const) {
      const { time, engines, routers } = await tierRig(sharing);
      engines[0]!.start();
      time.advance(6);
      routers[0]!.place(0, prompt);
      expect(routers[0]!.sees(0, prompt)).toBe(10);
    }
  });

  test("for chains that are too short are refused", async () => {
    const { routers } = await tierRig("mesh");
    expect(() => routers[0]!.place(0, promptOf(chain, 11))).toThrow(RangeError);
  });
});

describe("a tier", () => {
  test("knows its routers and engines by number", async () => {
    const { tier, routers } = await tierRig("mesh");
    const [first, second, third] = routers[0]!.targets;
    expect(() => tier.viewOf(2, [])).toThrow(RangeError);
    expect(() => tier.viewOf(-1, [])).toThrow(RangeError);
    expect(() => tier.viewOf(0.5, [])).toThrow(RangeError);
    expect(() => tier.viewOf(0, [{ ...second!, index: first!.index }])).toThrow(RangeError);
    expect(tier.viewOf(0, [third!, first!]).waitingFor).toEqual([]);
  });

  test("has routers", async () => {
    await expect(tierRig("mesh", 0)).rejects.toThrow(RangeError);
    await expect(tierRig("mesh", 1, 0)).rejects.toThrow(RangeError);
  });

  test("takes what it reads in whether or not anybody looks, and leaves no timer behind", async () => {
    const rig = await tierRig("mesh");
    for (let step = 0; step < 5_000; step++) {
      rig.engines[0]!.tell("stored", chainOf(step, 2), 0, 2);
      rig.time.advance(1);
    }
    rig.routers[0]!.view.setDraining();
    await rig.stop();
    rig.time.advance(5_000);
    expect(rig.time.pendingCount).toBe(0);
    expect(rig.routers[0]!.sees(0, promptOf(chainOf(4_999, 2)))).toBe(2);
  });
});
