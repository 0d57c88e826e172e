import type { Random } from "@espalier/core";
import type { FaultWorld } from "./fault-world.ts";

/** Does something again and again, after times that are exponentially distributed around the pace of the kind. */
export function repeat(world: FaultWorld, action: () => void): void {
  const { random, scheduler, paceMs } = world;
  const delayMs = Math.min(20 * paceMs, -Math.log(1 - random.float()) * paceMs);
  scheduler.after(delayMs, () => {
    if (world.isOver) return;
    action();
    repeat(world, action);
  });
}

/** Undoes something later, unless everything has been healed by then. */
export function undoLater(world: FaultWorld, afterMs: number, undo: () => void): void {
  world.scheduler.after(afterMs, () => {
    if (!world.isOver) undo();
  });
}

export function between(random: Random, least: number, most: number): number {
  return least + random.float() * (most - least);
}

export function pick<Item>(random: Random, items: readonly Item[]): Item {
  return items[random.integer(items.length)]!;
}

/** The same items in any order. */
export function shuffled<Item>(random: Random, items: readonly Item[]): Item[] {
  const left = [...items];
  return items.map(() => left.splice(random.integer(left.length), 1)[0]!);
}
