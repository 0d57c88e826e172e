import { createSeededRandom, DecayedSum, type Random, usageHalfLifeMs } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createUsageRouter, hear, tokensElsewhere, type UsageRouter } from "./usage-rig.ts";

const tenants = Array.from({ length: 40 }, (_, index) => `tenant-${index}`);

interface Node {
  readonly router: UsageRouter;
  /** What it has served, by tenant: the naive model. */
  readonly truth: Map<string, DecayedSum>;
}

interface Faults {
  readonly loss: number;
  readonly duplicates: number;
  readonly maxDelayMs: number;
}

/** Routers in a full mesh that loses, repeats and reorders frames, and relays them now and then. */
class Network {
  readonly nodes: readonly Node[];
  readonly #random: Random;
  readonly #time: VirtualTime;
  faults: Faults = { loss: 0.3, duplicates: 0.3, maxDelayMs: 400 };

  constructor(random: Random, time: VirtualTime) {
    this.#random = random;
    this.#time = time;
    this.nodes = ["a", "b", "c", "d"].map((name) => ({
      router: createUsageRouter(name, { time }),
      truth: new Map(),
    }));
    for (const { router } of this.nodes) {
      router.plane.exchange.onFrame((frame) => {
        for (const to of this.nodes) if (to.router !== router) this.#deliver(frame, to);
      });
    }
  }

  step(): void {
    const random = this.#random;
    const node = this.nodes[random.integer(this.nodes.length)]!;
    if (random.float() < 0.03) this.#relay(node);
    else {
      const tenant = tenants[random.integer(tenants.length)]!;
      const tokens = 1 + random.integer(5_000);
      node.router.pool.served("default", tenant, tokens);
      const truth = node.truth.get(tenant) ?? new DecayedSum(usageHalfLifeMs);
      truth.add(tokens, this.#time.clock.nowMs());
      node.truth.set(tenant, truth);
    }
    this.#time.advance(random.integer(60));
  }

  #deliver(frame: Uint8Array, to: Node): void {
    const { loss, duplicates, maxDelayMs } = this.faults;
    const copies = this.#random.float() < loss ? 0 : this.#random.float() < duplicates ? 2 : 1;
    for (let copy = 0; copy < copies; copy++) {
      const arrive = (): void => void to.router.plane.exchange.receive(frame);
      this.#time.scheduler.after(this.#random.float() * maxDelayMs, arrive);
    }
  }

  #relay(node: Node): void {
    const other = this.nodes[this.#random.integer(this.nodes.length)]!;
    for (const { frame } of node.router.plane.exchange.relayFrames()) if (other !== node) this.#deliver(frame, other);
  }
}

test.each([1, 2, 3, 4])("after quiet every router knows what the others have served, seed %i", (seed) => {
  const time = createVirtualTime();
  const network = new Network(createSeededRandom(seed), time);
  for (let step = 0; step < 800; step++) network.step();
  network.faults = { loss: 0, duplicates: 0, maxDelayMs: 0 };
  // Frames that are under way arrive, and each tenant has its turn.
  time.advance(4_000);
  for (const reader of network.nodes) {
    for (const tenant of tenants) {
      const others = network.nodes.filter((node) => node !== reader);
      const truth = others.reduce((sum, node) => sum + (node.truth.get(tenant)?.at(time.clock.nowMs()) ?? 0), 0);
      expect(Math.abs(tokensElsewhere(reader.router, tenant) - truth)).toBeLessThan(3 + 0.005 * truth);
    }
  }
});

/** Frames of three routers, of which one begins anew half way. */
function recordedFrames(random: Random, tenantCount = 12): Uint8Array[] {
  const time = createVirtualTime();
  const epochs = [
    ["a", 1],
    ["b", 1],
    ["c", 1],
    ["a", 2],
  ] as const;
  return epochs.flatMap(([name, epoch]) => {
    const router = createUsageRouter(name, { time, epoch });
    for (let step = 0; step < 60; step++) {
      const tenant = tenants[random.integer(tenantCount)]!;
      router.pool.served("default", tenant, 1 + random.integer(9_000));
      if (random.float() < 0.3) router.pool.lifted("default", tenant, random.integer(9_000));
      if (random.float() < 0.3)
        router.pool.waits("default", tenant, random.float() < 0.7 ? random.integer(60_000) : undefined);
      time.advance(random.integer(300));
    }
    router.plane.stop();
    return router.frames;
  });
}

/** What is known after frames have come at one moment in an order. */
function known(frames: readonly Uint8Array[]): readonly unknown[] {
  const router = createUsageRouter("reader", { time: createVirtualTime() });
  hear(router, frames);
  return tenants.map((tenant) => {
    const found = router.pool.elsewhere("default", tenant);
    return found && [Math.round(found.tokens), Math.round(found.lift), found.waits];
  });
}

function shuffled<Item>(items: readonly Item[], random: Random): Item[] {
  const order = items.map((item) => ({ item, at: random.float() }));
  return order.sort((one, other) => one.at - other.at).map(({ item }) => item);
}

test.each([1, 2, 3])("within an epoch what is known depends on no order and on no repetition, seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const frames = recordedFrames(random);
  const byEpoch = (epoch: number): Uint8Array[] => frames.filter((frame) => epochOf(frame) === epoch);
  const first = byEpoch(1);
  const second = byEpoch(2);
  expect([first.length > 50, second.length > 10]).toEqual([true, true]);
  const expected = known([...first, ...second]);
  for (let round = 0; round < 10; round++) {
    const mixed = shuffled([...first, ...first.slice(0, random.integer(first.length))], random);
    expect(known([...mixed, ...shuffled([...second, ...second], random)])).toEqual(expected);
  }
});

test.each([1, 2, 3])(
  "frames of an earlier and a later epoch leave the same in whatever order they come, seed %i",
  (seed) => {
    const random = createSeededRandom(seed);
    const frames = recordedFrames(random);
    const expected = known(frames);
    expect(expected.filter(Boolean).length).toBeGreaterThan(5);
    for (let round = 0; round < 10; round++) expect(known(shuffled(frames, random))).toEqual(expected);
  },
);

/** The epoch of a frame: behind kind, flags, the length of the router's name and its one letter. */
const epochOf = (frame: Uint8Array): number => frame[4]!;
