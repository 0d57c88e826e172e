import { createSeededRandom, type Random } from "@espalier/core";
import { createVirtualTime, fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { createRegistryRouter, heal, type RegistryRouter, stateOf } from "./registry-rig.ts";

const engines = Array.from({ length: 6 }, (_, index) => `e${index}`);

function change(router: RegistryRouter, random: Random): void {
  const engine = engines[random.integer(engines.length)]!;
  const dice = random.integer(5);
  if (dice === 0) router.registry.removeEngine(engine, "dns");
  else if (dice === 1) router.registry.setDraining(engine, undefined);
  else if (dice === 2) router.registry.setDraining(engine, random.integer(2) === 1);
  else router.registry.putEngine(engine, "dns", { url: `http://${random.integer(4)}` });
}

/** Delivers one waiting update to some of the others, now and then twice or not at all. */
function deliver(routers: readonly RegistryRouter[], random: Random): void {
  const writer = routers[random.integer(routers.length)]!;
  const sent = writer.outbox.splice(random.integer(writer.outbox.length), 1)[0];
  if (!sent) return;
  for (const router of routers) {
    if (router === writer || random.float() < 0.3) continue;
    router.receive(sent);
    if (random.float() < 0.2) router.receive(sent);
  }
}

test.each(fixedSeeds(16, 1))("routers end up saying the same, seed %d", (seed) => {
  const random = createSeededRandom(seed);
  const time = createVirtualTime();
  const routers = ["a", "b", "c", "d"].map((name, index) => createRegistryRouter(name, { time, aheadMs: index * 200 }));
  for (let step = 0; step < 200; step++) {
    time.advance(random.integer(20));
    const dice = random.float();
    if (dice < 0.4) change(routers[random.integer(routers.length)]!, random);
    else if (dice < 0.9) deliver(routers, random);
    else if (dice < 0.98) routers[random.integer(4)]!.sync(routers[random.integer(4)]!);
    else routers[random.integer(4)]!.registry.rotate();
    if (random.float() < 0.05) {
      const index = random.integer(routers.length);
      routers[index] = createRegistryRouter("abcd"[index]!, { time, epoch: step + 2, aheadMs: index * 200 });
    }
  }
  heal(routers);
  expect(new Set(routers.map((router) => stateOf(router, engines))).size).toBe(1);
  expect(new Set(routers.map(({ registry }) => registry.name)).size).toBe(1);
  const joiner = createRegistryRouter("late", { time });
  joiner.sync(routers[0]!);
  expect(stateOf(joiner, engines)).toBe(stateOf(routers[0]!, engines));
});

test.each([1, 2, 3, 4, 5])("without crashes the latest stamp of every key wins, seed %d", (seed) => {
  const random = createSeededRandom(100 + seed);
  const time = createVirtualTime();
  const routers = ["a", "b", "c"].map((name) => createRegistryRouter(name, { time }));
  const latest = new Map<string, boolean>();
  for (let step = 0; step < 200; step++) {
    time.advance(1 + random.integer(5));
    const router = routers[random.integer(3)]!;
    const engine = engines[random.integer(engines.length)]!;
    const isDraining = router.registry.drainingOf(engine) !== true;
    router.registry.setDraining(engine, isDraining);
    latest.set(engine, isDraining);
    if (random.float() < 0.5) deliver(routers, random);
  }
  heal(routers);
  for (const { registry } of routers) {
    for (const [engine, isDraining] of latest) expect(registry.drainingOf(engine)).toBe(isDraining);
  }
});
