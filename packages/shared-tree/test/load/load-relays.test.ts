import { createSeededRandom } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { maxLoadFrameBytes, maxLoadFrameReports, splitReports } from "../../src/load/load-frame.ts";
import { LoadSums } from "../../src/load/load-sums.ts";
import { connect, createLoadRouter, gaugeOf, type LoadRouter, routerId, sumsOf } from "./load-rig.ts";

/** Routers of which not all have a link: what one hears and finds new it passes on to its other neighbours. */
function meshOf(names: readonly string[], links: readonly string[], time: VirtualTime): Map<string, LoadRouter> {
  const routers = new Map(names.map((name) => [name, createLoadRouter(name, { time })]));
  const neighbours = new Map(names.map((name) => [name, new Set<string>()]));
  for (const [one, other] of links.map((link) => [...link] as [string, string])) {
    neighbours.get(one)!.add(other);
    neighbours.get(other)!.add(one);
  }
  const pass = (from: string, frame: Uint8Array, but?: string): void => {
    for (const to of neighbours.get(from)!) {
      if (to === but) continue;
      const { plane } = routers.get(to)!;
      if (plane.exchange.receive(frame).isNews) pass(to, frame, from);
    }
  };
  for (const [name, { plane }] of routers) {
    plane.exchange.onFrame((frame) => pass(name, frame));
    plane.start();
  }
  return routers;
}

describe("routers without a link to each other", () => {
  test.each([
    ["in a row", ["ab", "bc", "cd", "de"]],
    ["in a ring", ["ab", "bc", "cd", "de", "ea"]],
    ["in a star", ["ab", "ac", "ad", "ae"]],
    ["all together", ["ab", "ac", "ad", "ae", "bc", "bd", "be", "cd", "ce", "de"]],
  ])("%s hear each other by those between them, once, and end at exactly zero", (_what, links) => {
    const time = createVirtualTime();
    const routers = meshOf([..."abcde"], links, time);
    const random = createSeededRandom(links.length);
    const truth = new Map<string, number>();
    for (let step = 0; step < 200; step++) {
      const name = "abcde"[random.integer(5)]!;
      const target = `t${random.integer(3)}`;
      const inFlight = random.integer(6);
      truth.set(`${name} ${target}`, inFlight);
      routers.get(name)!.plane.set(target, gaugeOf(inFlight));
      time.advance(random.integer(20));
    }
    time.advance(20);
    const expectTruth = (): void => {
      for (const [name, router] of routers) {
        for (const target of ["t0", "t1", "t2"]) {
          const others = [..."abcde"].filter((other) => other !== name);
          const sum = others.reduce((before, other) => before + (truth.get(`${other} ${target}`) ?? 0), 0);
          expect(sumsOf(router, target)).toEqual(gaugeOf(sum));
        }
      }
    };
    expectTruth();
    for (const key of truth.keys()) {
      truth.set(key, 0);
      const [name, target] = key.split(" ") as [string, string];
      routers.get(name)!.plane.set(target, gaugeOf(0));
    }
    time.advance(20);
    expectTruth();
    for (const { plane } of routers.values())
      expect(plane.describe().map(({ targets }) => targets)).toEqual([0, 0, 0, 0]);
  });

  test("that a relay told of are forgotten when the relay hears them no more", () => {
    const time = createVirtualTime();
    const [a, b, c] = ["a", "b", "c"].map((name) => createLoadRouter(name, { time })) as [
      LoadRouter,
      LoadRouter,
      LoadRouter,
    ];
    connect(a, b);
    a.plane.set("t", gaugeOf(4));
    for (const { plane } of [b, c]) plane.start();
    time.advance(1_000);
    for (const { frame } of b.plane.exchange.relayFrames()) c.plane.exchange.receive(frame);
    expect(sumsOf(c, "t")).toEqual(gaugeOf(4));
    expect(c.plane.describe().map(({ ageMs }) => ageMs)).toEqual([1_000]);
    time.advance(750);
    expect([sumsOf(c, "t"), c.plane.shared.expiredInFlight]).toEqual([gaugeOf(0), 4]);
    expect(b.plane.exchange.relayFrames()).toEqual([]);
  });

  test("that are gone are not told of by a relay, nor is a relay's frame of them taken", () => {
    const time = createVirtualTime();
    const [a, b, c] = ["a", "b", "c"].map((name) => createLoadRouter(name, { time })) as [
      LoadRouter,
      LoadRouter,
      LoadRouter,
    ];
    connect(a, b);
    a.plane.set("t", gaugeOf(4));
    const relayed = b.plane.exchange.relayFrames();
    c.plane.exchange.receive(relayed[0]!.frame);
    for (const { plane } of [b, c]) plane.exchange.originGone({ router: routerId("a"), epoch: 1 });
    expect(b.plane.exchange.relayFrames()).toEqual([]);
    expect(c.plane.exchange.receive(relayed[0]!.frame).isNews).toBe(false);
    expect([sumsOf(b, "t"), sumsOf(c, "t")]).toEqual([gaugeOf(0), gaugeOf(0)]);
  });

  test("in two epochs are told of in the later one only", () => {
    const time = createVirtualTime();
    const [a, b] = ["a", "b"].map((name) => createLoadRouter(name, { time })) as [LoadRouter, LoadRouter];
    connect(a, b);
    a.plane.set("t", gaugeOf(4));
    a.epoch = 2;
    time.advance(10);
    a.plane.set("t", gaugeOf(5));
    const relayed = b.plane.exchange.relayFrames();
    expect(relayed.map(({ origin }) => origin.epoch)).toEqual([2]);
    expect(sumsOf(b, "t")).toEqual(gaugeOf(5));
  });
});

describe("reports cut into frames", () => {
  const reports = (count: number, keyLength: number) =>
    Array.from({ length: count }, () => ({ key: "k".repeat(keyLength) }));

  test.each([
    [0, 10, [0]],
    [1, 10, [1]],
    [maxLoadFrameReports, 0, [maxLoadFrameReports]],
    [maxLoadFrameReports + 1, 0, [maxLoadFrameReports, 1]],
    [2 * maxLoadFrameReports + 1, 0, [maxLoadFrameReports, maxLoadFrameReports, 1]],
  ])("%i with keys of %i characters make lists of %j", (count, keyLength, lengths) => {
    expect(splitReports(reports(count, keyLength)).map((list) => list.length)).toEqual(lengths);
  });

  test("of every size fit, in their order, and none is left out", () => {
    const random = createSeededRandom(2);
    const all = Array.from({ length: 3_000 }, (_, number) => ({
      number,
      key: random.integer(3) === 0 ? undefined : "€".repeat(random.integer(86)),
    }));
    const lists = splitReports(all);
    expect(lists.flat()).toEqual(all);
    for (const list of lists) {
      const bytes = list.reduce((sum, { key = "" }) => sum + 42 + new TextEncoder().encode(key).length, 512);
      expect(bytes).toBeLessThanOrEqual(maxLoadFrameBytes);
    }
    expect(lists.length).toBeGreaterThan(1);
  });
});

describe("sums", () => {
  test.each([1, 2, 3])(
    "of any adding, replacing and removing are what is in them, and exactly zero in the end, seed %i",
    (seed) => {
      const random = createSeededRandom(seed);
      const sums = new LoadSums(4, () => 1_000);
      const held = new Map<{ heardMs: number; linkDelayMs: number }, { slot: number; inFlight: number }>();
      const check = (): void => {
        for (let slot = 0; slot < 4; slot++) {
          const here = [...held].filter(([, each]) => each.slot === slot);
          const total = gaugeOf(here.reduce((sum, [, { inFlight }]) => sum + inFlight, 0));
          expect([sums.inFlight[slot], sums.decodeTokens[slot]]).toEqual([total.inFlight, total.decodeTokens]);
          expect(sums.ageMs(slot)).toBe(
            here.length === 0 ? 0 : 1_000 - Math.min(...here.map(([{ heardMs }]) => heardMs)),
          );
        }
      };
      for (let step = 0; step < 300; step++) {
        const origins = [...held.keys()];
        const by = origins[random.integer(Math.max(1, origins.length))];
        const known = by && held.get(by);
        const inFlight = 1 + random.integer(2 ** 30);
        if (!known || random.integer(3) === 0) {
          const added = { heardMs: random.integer(1_000), linkDelayMs: random.integer(100) };
          const slot = random.integer(4);
          sums.add(slot, gaugeOf(inFlight), added);
          held.set(added, { slot, inFlight });
        } else if (random.integer(2) === 0) {
          sums.replace(known.slot, gaugeOf(known.inFlight), gaugeOf(inFlight), by);
          known.inFlight = inFlight;
        } else {
          sums.remove(known.slot, gaugeOf(known.inFlight), by);
          held.delete(by);
        }
        check();
      }
      for (const [by, { slot, inFlight }] of [...held]) {
        sums.remove(slot, gaugeOf(inFlight), by);
        held.delete(by);
      }
      check();
    },
  );

  test("a slot that is out of range has no age", () => {
    expect(new LoadSums(2, () => 5).ageMs(2)).toBe(0);
  });
});
