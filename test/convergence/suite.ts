import { afterEach, expect, test } from "vitest";
import { Cluster, type ClusterOptions } from "./cluster.ts";
import type { Environment } from "./environment.ts";

export const routerNames = ["a", "b", "c", "d"] as const;

/** What must hold over whatever carries the routers' state. Called once by a test file, for its environment. */
export function convergenceSuite(createEnvironment: (seed: number) => Promise<Environment>): void {
  let cluster: Cluster | undefined;

  afterEach(async () => {
    await cluster?.stop();
    cluster = undefined;
  });

  async function begin(routers: number, options: Partial<ClusterOptions> = {}): Promise<Cluster> {
    const seed = options.seed ?? 1;
    const started = new Cluster({ seed, engines: 4, ...options, environment: await createEnvironment(seed) });
    cluster = started;
    for (const name of routerNames.slice(0, routers)) await started.add(name);
    await started.untilSettled();
    return started;
  }

  test("all see what each of them is told: events of different engines, load, predictions, bindings, registry", async () => {
    const on = await begin(4);
    await on.work(40);
    for (const [at, router] of on.alive.entries()) on.register(router, `engine-${at}`, at);
    on.router("c").replica.registry.setDraining("engine-1/0", true);
    await on.untilConverged();
    expect(on.router("a").replica.registry.engines()).toHaveLength(4);
    expect(on.router("d").replica.registry.drainingOf("engine-1/0")).toBe(true);
    for (const engine of on.engines)
      expect(on.router("b").held(engine)).toEqual([...engine.held].sort((x, y) => x - y));
  });

  test("two routers that write the same feed at the same time, each with holes of its own, end with the same facts", async () => {
    const on = await begin(3, { canReplay: false, seed: 2 });
    for (let round = 0; round < 6; round++) {
      for (const { feeds, replica } of on.alive) {
        for (const [target, feed] of feeds) {
          // Whoever reads writes, as two owners do that have not heard of each other.
          if (round % 2 === 0 && replica.feeds.claimOf(target)) feed.reader.setRole("owner");
        }
      }
      for (const engine of on.engines) for (let count = 0; count < 6; count++) engine.publish();
      const [reader] = on.random.integer(2) === 0 ? on.alive : [...on.alive].reverse();
      for (const feed of reader!.feeds.values()) feed.lose(1 + on.random.integer(3));
      await on.environment.pass(60);
    }
    await on.environment.pass(3_000);
    for (const engine of on.engines) engine.publish();
    await on.untilConverged(8_000);
  });

  testFaults(begin);
}

type Begin = (routers: number, options?: Partial<ClusterOptions>) => Promise<Cluster>;

/** What becomes of routers that are cut off, end, come late or come again. */
function testFaults(begin: Begin): void {
  test("a router that was cut off for long is equal again within 5 s", async () => {
    const on = await begin(4, { seed: 3 });
    await on.work(20);
    on.environment.isolate("b");
    await on.work(20);
    await on.environment.pass(5_000);
    await on.work(20);
    on.environment.heal();
    await on.untilSettled();
    for (const engine of on.engines) engine.publish();
    await on.untilConverged(5_000);
  });

  test("nothing of a router that was killed stays but what it has seen", async () => {
    const on = await begin(4, { seed: 4 });
    await on.work(20);
    await on.untilConverged();
    await on.router("a").kill();
    await on.work(10);
    await on.untilSettled();
    for (const engine of on.engines) engine.publish();
    await on.untilConverged();
  });

  test("a router that comes late, and one that comes again, learn everything", async () => {
    const on = await begin(2, { seed: 5 });
    await on.work(60);
    await on.add("c");
    await on.work(10);
    await on.router("b").kill();
    await on.work(10);
    await on.add("b");
    await on.untilSettled();
    for (const engine of on.engines) engine.publish();
    await on.untilConverged();
  });

  test("engines that restart are known by their new epoch, whoever reads them", async () => {
    const on = await begin(3, { seed: 6 });
    await on.work(20);
    on.engines[0]!.restart();
    await on.work(5);
    await on.router("a").leave();
    on.engines[1]!.restart();
    await on.work(20);
    await on.untilSettled();
    for (const engine of on.engines) engine.publish();
    await on.untilConverged();
  });

  test("links that break and come back lose nothing", async () => {
    const on = await begin(4, { seed: 7 });
    for (let round = 0; round < 6; round++) {
      await on.work(8);
      on.environment.reset(routerNames[on.random.integer(4)]!);
    }
    await on.untilSettled();
    await on.untilConverged();
  });
}
