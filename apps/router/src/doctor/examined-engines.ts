import type { FleetProbe } from "@espalier/server";
import { attempt, type Finding } from "./check.ts";
import type { Examined } from "./examined.ts";

export type Engine = FleetProbe["fleet"]["engines"][number];

export const upEngines = ({ fleet }: FleetProbe): readonly Engine[] =>
  fleet.engines.filter(({ state }) => state === "up");

/** Engines are asked one after the other in so many rows. */
const rows = 16;

export async function eachOf<Item>(
  items: readonly Item[],
  check: (item: Item) => Promise<readonly Finding[]>,
): Promise<readonly Finding[]> {
  const found: (readonly Finding[])[] = [];
  const waiting = items.entries();
  const work = async (): Promise<void> => {
    for (const [at, item] of waiting) found[at] = await attempt(() => check(item));
  };
  await Promise.all(Array.from({ length: Math.min(rows, items.length) }, work));
  return found.flat();
}

/** The path of an engine's setting: of its entry, or of the source that found it. */
export function settingOf({ config }: Pick<Examined, "config">, { id }: Pick<Engine, "id">, key: string): string {
  const at = config.engines.findIndex((entry) => entry.id === id);
  if (at >= 0) return `engines[${at}].${key}`;
  return config.enginesFile === undefined ? "discovery" : "engines-file";
}
