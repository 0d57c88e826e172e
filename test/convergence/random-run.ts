import { createSeededRandom, type Random } from "@espalier/core";
import { Cluster } from "./cluster.ts";
import { withResentUpdates } from "./resent-updates.ts";
import { createScheduledEnvironment, type ScheduledEnvironment } from "./scheduled-environment.ts";

/** What has happened in runs, so that a test can assert that all of it was reached. */
export interface RunCounts {
  deliveries: number;
  resent: number;
  breaks: number;
  isolations: number;
  kills: number;
  starts: number;
  leaves: number;
  engineRestarts: number;
  lost: number;
  takeovers: number;
}

export function noCounts(): RunCounts {
  const none = { deliveries: 0, resent: 0, breaks: 0, isolations: 0, kills: 0 };
  return { ...none, starts: 0, leaves: 0, engineRestarts: 0, lost: 0, takeovers: 0 };
}

/** One run: a seed picks every delivery, fault and change; at the end everything is healed, and all must be equal. */
export class RandomRun {
  readonly #random: Random;
  readonly #environment: ScheduledEnvironment;
  readonly #cluster: Cluster;
  readonly #counts: RunCounts;
  readonly #names: readonly string[];
  /** Whether readers lose messages for good. Then what nobody has read is not known, but all agree all the same. */
  readonly #isLossy: boolean;
  readonly #owners = new Map<string, string>();

  constructor(seed: number, counts: RunCounts) {
    this.#random = createSeededRandom(seed);
    this.#counts = counts;
    this.#environment = createScheduledEnvironment(this.#random);
    this.#isLossy = this.#random.integer(2) === 0;
    this.#names = ["a", "b", "c", "d", "e"].slice(0, 3 + this.#random.integer(3));
    this.#cluster = new Cluster({
      seed,
      environment: this.#environment,
      engines: 1 + this.#random.integer(4),
      blocksPerEngine: 60,
      feedDelayMs: this.#random.integer(30),
      canReplay: !this.#isLossy,
      wrapPorts: (ports) => withResentUpdates(ports, this.#random, () => this.#counts.resent++),
    });
  }

  /** @throws Error saying what differs */
  async run(steps: number): Promise<void> {
    for (const name of this.#names) await this.#cluster.add(name);
    for (let step = 0; step < steps; step++) await this.#step();
    await this.#heal();
    await this.#cluster.stop();
  }

  async #step(): Promise<void> {
    const random = this.#random;
    const dice = random.integer(1_000);
    if (dice < 450) this.#deliver(1 + random.integer(12));
    else if (dice < 620) this.#environment.advance(1 + random.integer(20));
    else if (dice < 760) this.#pick(this.#cluster.engines).publish();
    else if (dice < 860) this.#cluster.use(this.#pick(this.#cluster.alive));
    else if (dice < 880) this.#lose();
    else if (dice < 900) this.#register();
    else if (dice < 930) this.#counts.breaks += this.#environment.network.breakOne() ? 1 : 0;
    else await this.#fault(dice - 930);
    this.#noteOwners();
  }

  async #fault(dice: number): Promise<void> {
    const { alive } = this.#cluster;
    if (dice < 8) {
      this.#environment.isolate(this.#pick(alive).name);
      this.#counts.isolations++;
    } else if (dice < 22) this.#environment.heal();
    else if (dice < 28 && alive.length > 1) {
      await this.#pick(alive).kill();
      this.#counts.kills++;
    } else if (dice < 31 && alive.length > 1) {
      await this.#pick(alive).leave();
      this.#counts.leaves++;
    } else if (dice < 45) await this.#startOne();
    else if (dice < 48) {
      this.#pick(this.#cluster.engines).restart();
      this.#counts.engineRestarts++;
    } else if (dice < 66) await this.#environment.pass(1 + this.#random.integer(300));
    else await this.#environment.pass(this.#random.integer(4_000));
  }

  async #heal(): Promise<void> {
    this.#environment.heal();
    for (const name of this.#names) if (!this.#cluster.routers.get(name)?.isAlive) await this.#cluster.add(name);
    await this.#cluster.untilSettled(20_000);
    for (let round = 0; round < 3; round++) {
      for (const engine of this.#cluster.engines) engine.publish();
      await this.#environment.pass(500);
    }
    await this.#cluster.untilConverged(20_000);
  }

  #deliver(count: number): void {
    for (let left = count; left > 0 && this.#environment.network.deliver(); left--) this.#counts.deliveries++;
  }

  #lose(): void {
    const feeds = this.#cluster.alive.flatMap(({ feeds: read }) => [...read.values()]);
    if (!this.#isLossy || feeds.length === 0) return;
    this.#pick(feeds).lose(1 + this.#random.integer(4));
    this.#counts.lost++;
  }

  #register(): void {
    const router = this.#pick(this.#cluster.alive);
    const { key } = this.#pick(this.#cluster.engines);
    const value = this.#random.integer(4) === 0 ? undefined : this.#random.integer(100);
    this.#cluster.register(router, key, value);
    if (this.#random.integer(3) === 0) router.replica.registry.setDraining(key, this.#random.integer(2) === 0);
  }

  async #startOne(): Promise<void> {
    const ended = this.#names.filter((name) => !this.#cluster.routers.get(name)?.isAlive);
    if (ended.length === 0) return;
    await this.#cluster.add(this.#pick(ended));
    this.#counts.starts++;
  }

  #noteOwners(): void {
    for (const { name, feeds } of this.#cluster.alive) {
      for (const [target, { reader }] of feeds) {
        if (reader.role !== "owner" || this.#owners.get(target) === name) continue;
        if (this.#owners.has(target)) this.#counts.takeovers++;
        this.#owners.set(target, name);
      }
    }
  }

  #pick<Item>(items: readonly Item[]): Item {
    return items[this.#random.integer(items.length)]!;
  }
}
