import { dualMapRivals } from "./dualmap.ts";
import { gorgoRivals } from "./gorgo.ts";
import { peerRivals } from "./peers.ts";
import type { CreateRival } from "./rival.ts";
import { skywalkerRivals } from "./skywalker.ts";

const rivals: ReadonlyMap<string, CreateRival> = new Map(
  Object.entries({ ...gorgoRivals, ...skywalkerRivals, ...peerRivals, ...dualMapRivals }),
);

/** Published systems that a fleet can have in place of routers, by the names that `--policy` takes. */
export const rivalNames: readonly string[] = [...rivals.keys()];

/** Those that need no regions. The others are about them. */
export const nearRivalNames: readonly string[] = Object.keys(dualMapRivals);

export const rivalOf = (name: string): CreateRival | undefined => rivals.get(name);
