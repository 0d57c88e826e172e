import type { FaultWorld } from "./fault-world.ts";
import { between, pick, repeat, undoLater } from "./repeat.ts";

const running = ({ fleet, paused }: FaultWorld): number[] =>
  Array.from({ length: fleet.routerCount }, (_, router) => router).filter(
    (router) => fleet.isRouterUp(router) && !paused.has(router),
  );

/** A router that may go: another one runs then. */
function expendable(world: FaultWorld): number | undefined {
  const routers = running(world);
  return routers.length > 1 ? pick(world.random, routers) : undefined;
}

/** Begins a router's next epoch, as soon as the last one has ended. */
function startAgain(world: FaultWorld, router: number, afterMs: number): void {
  undoLater(world, afterMs, () => {
    if (world.replaced.has(router)) return;
    if (world.fleet.isRouterUp(router)) startAgain(world, router, 500);
    else {
      world.fleet.startRouter(router);
      world.note(router);
    }
  });
}

function kill(world: FaultWorld): void {
  repeat(world, () => {
    const router = expendable(world);
    if (router === undefined) return;
    world.fleet.killRouter(router);
    world.counts.kills++;
    world.note(router);
    startAgain(world, router, between(world.random, 20, 6_000));
  });
}

function leave(world: FaultWorld): void {
  repeat(world, () => {
    const router = expendable(world);
    if (router === undefined) return;
    world.fleet.leaveRouter(router);
    world.counts.leaves++;
    world.note(router);
    startAgain(world, router, between(world.random, 500, 6_000));
  });
}

/** A router is gone for good, and another one that nobody has heard of comes. The first one stays: it is a seed. */
function newId(world: FaultWorld): void {
  repeat(world, () => {
    const router = expendable(world);
    const spare = world.spares[0];
    if (router === undefined || router === 0 || spare === undefined) return;
    world.spares.shift();
    world.replaced.add(router);
    world.fleet.killRouter(router);
    world.fleet.startRouter(spare);
    world.counts.newIds++;
    world.note(router, spare);
  });
}

function pause(world: FaultWorld): void {
  repeat(world, () => {
    const router = expendable(world);
    if (router === undefined) return;
    world.fleet.pauseRouter(router);
    world.paused.add(router);
    world.note(router);
    undoLater(world, 1_000 * 30 ** world.random.float(), () => {
      world.paused.delete(router);
      if (!world.fleet.isRouterUp(router)) return;
      world.fleet.resumeRouter(router);
      world.counts.pausesSurvived++;
      world.note(router);
    });
  });
}

const jumpMostMs = 600_000;

function clockJumps(world: FaultWorld): void {
  repeat(world, () => {
    const router = world.random.integer(world.fleet.routerCount);
    const byMs = between(world.random, -1, 1) ** 3 * jumpMostMs;
    world.fleet.jumpClock(router, byMs);
    world.counts.clockJumps++;
    world.note(router, byMs);
  });
}

/** In a thousand; a quartz is off by a twentieth of this. */
const driftMostRate = 0.001;

function clockDrift(world: FaultWorld): void {
  repeat(world, () => {
    const router = world.random.integer(world.fleet.routerCount);
    world.fleet.setDrift(router, between(world.random, -driftMostRate, driftMostRate));
    world.counts.drifts++;
    world.note(router);
  });
}

function engineRestart(world: FaultWorld): void {
  const { fleet, random } = world;
  repeat(world, () => {
    const up = Array.from({ length: fleet.engineCount }, (_, engine) => engine).filter((one) => fleet.isEngineUp(one));
    if (up.length < 2) return;
    const engine = pick(random, up);
    fleet.killEngine(engine);
    world.counts.engineRestarts++;
    world.note(engine);
    undoLater(world, between(random, 20, 4_000), () => {
      fleet.startEngine(engine);
      world.note(engine);
    });
  });
}

function eventGaps(world: FaultWorld): void {
  repeat(world, () => {
    const engine = world.random.integer(world.fleet.engineCount);
    const messages = 1 + world.random.integer(5);
    world.fleet.loseEvents(engine, messages);
    world.counts.lostEvents += messages;
    world.note(engine, messages);
  });
}

function noReplay(world: FaultWorld): void {
  repeat(world, () => {
    const engine = world.random.integer(world.fleet.engineCount);
    world.fleet.setReplay(engine, false);
    world.note(engine);
    undoLater(world, between(world.random, 200, 10_000), () => {
      world.fleet.setReplay(engine, true);
      world.note(engine);
    });
  });
}

export const processFaults = {
  kill,
  leave,
  "new-id": newId,
  pause,
  "clock-jump": clockJumps,
  "clock-drift": clockDrift,
  "engine-restart": engineRestart,
  "event-gaps": eventGaps,
  "no-replay": noReplay,
};
