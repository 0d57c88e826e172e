import type { FaultWorld } from "./fault-world.ts";
import { between, repeat, shuffled, undoLater } from "./repeat.ts";

const routersOf = ({ fleet }: FaultWorld): number[] => Array.from({ length: fleet.routerCount }, (_, router) => router);

/** Two different routers. */
function pair(world: FaultWorld): readonly [number, number] {
  const [one, other] = shuffled(world.random, routersOf(world));
  return [one!, other!];
}

/** Cuts what is told, and mends it after a while. */
function forAWhile(world: FaultWorld, mostMs: number, cut: () => () => void): void {
  const mend = cut();
  undoLater(world, between(world.random, 200, mostMs), () => {
    mend();
    world.counts.partitionsHealed++;
    world.note();
  });
}

const partitionMostMs = 8_000;
const clogMostMs = 5_000;

/** One-way delays of 0 to 30 ms at least and of 30 to 100 ms in the mean, drawn anew now and then. */
function delay(world: FaultWorld): void {
  const { random, fleet } = world;
  const draw = (): void => {
    const delayMs = between(random, 0, 30);
    const meanMs = between(random, 30, 100);
    fleet.setLinkSpeed({ delayMs, jitterMs: 2 * (meanMs - delayMs) });
    world.note(delayMs);
  };
  draw();
  repeat(world, draw);
}

/** Connections break, with what is on its way. */
function breaks(world: FaultWorld): void {
  repeat(world, () => {
    const [one, other] = pair(world);
    world.fleet.resetLink(one, other);
    world.counts.breaks++;
    world.note(one, other);
  });
}

/** One direction stands still for a while, and goes on with all that has gathered. */
function clogs(world: FaultWorld): void {
  repeat(world, () => {
    const [from, to] = pair(world);
    const mend = world.cuts.cut(from, to);
    world.note(from, to);
    undoLater(world, between(world.random, 50, clogMostMs), () => {
      mend();
      world.counts.clogs++;
      world.note(from, to);
    });
  });
}

function halves(world: FaultWorld): void {
  repeat(world, () => {
    const routers = shuffled(world.random, routersOf(world));
    const half = Math.ceil(routers.length / 2);
    world.note(...routers);
    forAWhile(world, partitionMostMs, () => world.cuts.separate(routers.slice(0, half), routers.slice(half)));
  });
}

function isolateOne(world: FaultWorld): void {
  repeat(world, () => {
    const [alone, ...others] = shuffled(world.random, routersOf(world));
    world.note(alone);
    forAWhile(world, partitionMostMs, () => world.cuts.separate([alone!], others));
  });
}

/** One router is heard by nobody, or hears nobody. */
function oneWay(world: FaultWorld): void {
  repeat(world, () => {
    const [alone, ...others] = shuffled(world.random, routersOf(world));
    const isMute = world.random.integer(2) === 0;
    world.note(alone, Number(isMute));
    forAWhile(world, partitionMostMs, () => {
      const mends = others.map((other) => (isMute ? world.cuts.cut(alone!, other) : world.cuts.cut(other, alone!)));
      return () => {
        for (const mend of mends) mend();
      };
    });
  });
}

/** Two sides that hear each other by one router only. */
function bridge(world: FaultWorld): void {
  if (world.fleet.routerCount < 3) return;
  repeat(world, () => {
    const [, ...routers] = shuffled(world.random, routersOf(world));
    const half = Math.ceil(routers.length / 2);
    world.note(...routers);
    forAWhile(world, partitionMostMs, () => world.cuts.separate(routers.slice(0, half), routers.slice(half)));
  });
}

/** A link that goes and comes faster than anybody can be sure of it. */
function flapping(world: FaultWorld): void {
  repeat(world, () => {
    const [one, other] = pair(world);
    const flips = 2 + world.random.integer(8);
    const periodMs = between(world.random, 50, 1_500);
    const flip = (left: number): void => {
      if (left === 0) return;
      const mend = world.cuts.separate([one], [other]);
      world.note(one, other);
      undoLater(world, periodMs / 2, mend);
      undoLater(world, periodMs, () => flip(left - 1));
    };
    flip(flips);
    world.counts.clogs++;
  });
}

/** Swizzle-clog: some routers are cut off one after the other, and come back in another order. */
function swizzle(world: FaultWorld): void {
  const { random, cuts } = world;
  repeat(world, () => {
    const routers = routersOf(world);
    const some = shuffled(random, routers).slice(0, 1 + random.integer(routers.length));
    const mends = new Map<number, () => void>();
    const stepMs = between(random, 50, 800);
    for (const [at, router] of some.entries()) {
      undoLater(world, at * stepMs, () => {
        const others = routers.filter((other) => other !== router);
        mends.set(router, cuts.separate([router], others));
        world.note(router);
      });
    }
    const back = shuffled(random, some);
    for (const [at, router] of back.entries()) {
      undoLater(world, (some.length + at) * stepMs + 1, () => {
        mends.get(router)?.();
        world.counts.partitionsHealed++;
        world.note(router);
      });
    }
  });
}

export const linkFaults = {
  delay,
  breaks,
  clogs,
  halves,
  "isolate-one": isolateOne,
  "one-way": oneWay,
  bridge,
  flapping,
  swizzle,
};
