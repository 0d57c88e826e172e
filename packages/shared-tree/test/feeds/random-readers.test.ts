import { expect, test } from "vitest";
import { FeedRig, type RigRouter, target } from "./feed-rig.ts";

/** Two readers, of which one never misses a message, and a router that reads nothing; roles, links and epochs change. */
class RandomRun {
  readonly rig: FeedRig;
  readonly complete: RigRouter;
  readonly lossy: RigRouter;
  /** Readers that have not noticed yet that the engine was restarted: they have read the old epoch only. */
  readonly #unaware = new Set<RigRouter>();
  readonly seen = { restarts: 0, misses: 0, partitions: 0, moves: 0 };

  constructor(seed: number) {
    this.rig = new FeedRig(seed, 120);
    const limits = { maxKeptRecords: 4 + this.rig.random.integer(60), minCheckpointOps: 50, openGapMs: 300 };
    const names = this.rig.random.integer(2) === 0 ? ["a", "b"] : ["b", "a"];
    this.complete = this.rig.add(names[0]!, limits);
    this.lossy = this.rig.add(names[1]!, limits);
    this.rig.add("c");
    this.#move();
  }

  step(): void {
    const { rig, complete, lossy } = this;
    const { random } = rig;
    const dice = random.integer(100);
    if (dice < 35) rig.publish(1 + random.integer(8));
    else if (dice < 60) this.#read(complete);
    else if (dice < 80) this.#read(lossy);
    else if (dice < 82) this.#miss();
    else if (dice < 84) this.#move();
    else if (dice < 86) this.#part();
    else if (dice < 87 && this.#unaware.size === 0) this.#restart();
    else rig.exchange();
  }

  /** Everybody hears and reads everything. */
  heal(): void {
    const { rig, complete, lossy } = this;
    rig.apart.clear();
    // Who knows all takes over by itself, too.
    if (rig.random.integer(2) === 0) {
      complete.reader.setRole("owner");
      lossy.reader.setRole("backup");
    }
    for (let round = 0; round < 6; round++) {
      rig.publish(1);
      for (const router of [complete, lossy]) this.#read(router, 1_000_000);
      rig.settle();
    }
  }

  #read(router: RigRouter, count = 1 + this.rig.random.integer(12)): void {
    if (this.#unaware.delete(router)) router.notice();
    router.read(count);
  }

  #miss(): void {
    if (this.#unaware.has(this.lossy) || !this.lossy.skip(1 + this.rig.random.integer(4))) return;
    this.seen.misses++;
  }

  #move(): void {
    this.seen.moves++;
    const isComplete = this.rig.random.integer(2) === 0;
    this.complete.reader.setRole(isComplete ? "owner" : "backup");
    this.lossy.reader.setRole(isComplete ? "backup" : "owner");
  }

  #part(): void {
    const { apart, routers, random } = this.rig;
    const router = routers[random.integer(routers.length)]!;
    this.seen.partitions++;
    if (!apart.delete(router)) apart.add(router);
  }

  #restart(): void {
    this.seen.restarts++;
    this.rig.engine.restart();
    for (const router of [this.complete, this.lossy]) this.#unaware.add(router);
  }
}

test("after whatever roles, losses, partitions and restarts every router holds what the engine holds", () => {
  const seen = { restarts: 0, misses: 0, partitions: 0, moves: 0, byRecords: 0, byState: 0, yields: 0 };
  for (let seed = 1; seed <= 40; seed++) {
    const run = new RandomRun(seed);
    try {
      for (let step = 0; step < 250; step++) run.step();
      run.heal();
      run.rig.expectTruth();
      expect(run.rig.owners()).toHaveLength(1);
      const epochs = run.rig.routers.map(({ fold }) => fold.state(target)?.epoch?.checksum);
      expect(new Set(epochs).size).toBe(1);
    } catch (error) {
      throw new Error(`run again with seed ${seed}`, { cause: error });
    }
    for (const key of ["restarts", "misses", "partitions", "moves"] as const) seen[key] += run.seen[key];
    for (const router of [run.complete, run.lossy]) {
      seen.byRecords += router.takeovers("records");
      seen.byState += router.takeovers("state");
      seen.yields += router.meter.value("espalier_feed_yields_total");
    }
  }
  // All of it was reached.
  for (const [what, count] of Object.entries(seen)) expect(count, what).toBeGreaterThan(20);
}, 120_000);
