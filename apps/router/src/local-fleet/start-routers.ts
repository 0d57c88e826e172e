import { type LocalRouterOptions, type RouterListening, startLocalRouter } from "./local-fleet.ts";
import type { Child } from "./start-child.ts";
import { untilReady } from "./until-ready.ts";

/** What routers beside each other have in common. */
export const sharings = ["mesh", "none"] as const;

export type Sharing = (typeof sharings)[number];

export interface StartRoutersOptions {
  readonly count: number;
  readonly sharing: Sharing;
  /** How the router of this index differs from the others. */
  readonly optionsOf: (index: number) => Omit<LocalRouterOptions, "mesh">;
  /** Engines that each must be able to use before it counts as started; undefined does not wait. */
  readonly untilEngines: number | undefined;
  /** Gives up starting. */
  readonly signal?: AbortSignal;
}

/** Starts routers one after the other, each linked with those before it. What was started is in `children`, whatever happens. */
export async function startRouters(
  { count, sharing, optionsOf, untilEngines, signal }: StartRoutersOptions,
  children: Child<unknown>[],
): Promise<readonly RouterListening[]> {
  const routers: RouterListening[] = [];
  for (let index = 0; index < count; index++) {
    const seeds = routers.flatMap(({ meshAddress }) => (meshAddress === null ? [] : [meshAddress]));
    const isShared = sharing === "mesh" && count > 1;
    const router = await startLocalRouter({
      ...optionsOf(index),
      ...(isShared ? { mesh: { routerId: `router-${index + 1}`, seeds } } : {}),
    });
    children.push(router);
    if (untilEngines !== undefined) await untilReady(router.listening, untilEngines, signal);
    routers.push(router.listening);
  }
  return routers;
}
