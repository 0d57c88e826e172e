import { gorgoRivals } from "./gorgo.ts";
import { peerRivals } from "./peers.ts";
import type { CreateRival } from "./rival.ts";
import { skywalkerRivals } from "./skywalker.ts";

const rivals: ReadonlyMap<string, CreateRival> = new Map(
  Object.entries({ ...gorgoRivals, ...skywalkerRivals, ...peerRivals }),
);

/** Published systems that a fleet with regions can have in place of routers, by the names that `--policy` takes. */
export const rivalNames: readonly string[] = [...rivals.keys()];

export const rivalOf = (name: string): CreateRival | undefined => rivals.get(name);
