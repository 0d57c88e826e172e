import { createSeededRandom, type Random } from "@espalier/core";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { LoadGauge } from "../../src/load/load-gauge.ts";
import { createLoadRouter, gaugeOf, type LoadRouter, routerId, sumsOf } from "./load-rig.ts";

const targets = Array.from({ length: 80 }, (_, index) => `engine-${index}/0`);

interface Node {
  readonly name: string;
  router: LoadRouter;
  epoch: number;
  /** What it has in flight, by target: the naive model. */
  truth: Map<string, LoadGauge>;
}

interface Faults {
  readonly loss: number;
  readonly duplicates: number;
  readonly maxDelayMs: number;
}

/** Routers in a full mesh that loses, repeats and reorders frames, and relays them now and then. */
class Network {
  readonly nodes: Node[] = [];
  readonly #random: Random;
  readonly #time: VirtualTime;
  faults: Faults;

  constructor(random: Random, time: VirtualTime, faults: Faults) {
    this.#random = random;
    this.#time = time;
    this.faults = faults;
    for (const name of ["a", "b", "c", "d"]) this.nodes.push(this.#begin({ name, epoch: 0 }));
  }

  step(): void {
    const random = this.#random;
    const node = this.nodes[random.integer(this.nodes.length)]!;
    const dice = random.float();
    if (dice < 0.01) this.restart(node);
    else if (dice < 0.04) this.#relay(node);
    else {
      const target = targets[random.integer(targets.length)]!;
      const gauge = gaugeOf(random.float() < 0.3 ? 0 : random.integer(50));
      node.truth.set(target, gauge);
      node.router.plane.set(target, gauge);
    }
    this.#time.advance(random.integer(30));
  }

  restart(node: Node): void {
    node.router.plane.stop();
    Object.assign(node, this.#begin(node));
    if (this.#random.float() < 0.5) return;
    for (const { router } of this.nodes) {
      if (router !== node.router)
        router.plane.exchange.originGone({ router: routerId(node.name), epoch: node.epoch - 1 });
    }
  }

  #begin({ name, epoch }: Pick<Node, "name" | "epoch">): Node {
    const fleet = targets.slice(0, targets.length / 2);
    const router = createLoadRouter(name, { time: this.#time, epoch: epoch + 1, capacity: 128, fleet });
    router.plane.exchange.onFrame((frame) => {
      for (const other of this.nodes) if (other.name !== name) this.#deliver(frame, other);
    });
    const others = this.nodes.filter((other) => other.name !== name);
    for (const other of others) router.plane.exchange.receive(other.router.plane.exchange.fullFrames()[0]!);
    router.plane.start();
    return { name, router, epoch: epoch + 1, truth: new Map() };
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
    for (const { frame } of node.router.plane.exchange.relayFrames()) {
      if (other !== node) this.#deliver(frame, other);
    }
  }
}

function truthFor(network: Network, reader: Node, target: string): LoadGauge {
  const counts = network.nodes.filter((node) => node !== reader).map((node) => node.truth.get(target)?.inFlight ?? 0);
  return gaugeOf(counts.reduce((sum, count) => sum + count, 0));
}

test.each([1, 2, 3, 4, 5, 6])("sums are never negative and equal the truth after quiet, seed %d", (seed) => {
  const random = createSeededRandom(seed);
  const time = createVirtualTime();
  const network = new Network(random, time, { loss: 0.2, duplicates: 0.3, maxDelayMs: 120 });
  for (let step = 0; step < 600; step++) {
    network.step();
    for (const { router } of network.nodes) {
      for (const column of [router.plane.shared.inFlight, router.plane.shared.decodeTokens]) {
        expect(column.every((sum) => sum >= 0)).toBe(true);
      }
    }
  }
  network.faults = { loss: 0, duplicates: 0, maxDelayMs: 0 };
  for (const { router } of network.nodes) for (const target of targets) router.slots.slotOf(target);
  time.advance(3_000);
  for (const node of network.nodes) {
    for (const target of targets) expect(sumsOf(node.router, target)).toEqual(truthFor(network, node, target));
  }
  for (const node of network.nodes) for (const target of targets) node.router.plane.set(target, gaugeOf(0));
  time.advance(1_500);
  for (const { router } of network.nodes) {
    for (const column of [router.plane.shared.inFlight, router.plane.shared.pendingWorkMs]) {
      expect([...column].every((sum) => sum === 0)).toBe(true);
    }
    expect(targets.every((_, slot) => router.plane.shared.ageMs(slot) === 0)).toBe(true);
  }
});
