import {
  type LocalEnginesOptions,
  type LocalRouterOptions,
  startLocalEngines,
  startLocalRouter,
} from "./local-fleet.ts";
import { type Child, type RouterListening, untilReady } from "./start-child.ts";

/** What several routers share. */
export const sharings = ["mesh", "none"] as const;

export type Sharing = (typeof sharings)[number];

export interface StartRoutersOptions {
  readonly count: number;
  readonly sharing: Sharing;
  /** The settings in which the router of this index differs from the others. */
  readonly optionsOf: (index: number) => Omit<LocalRouterOptions, "mesh">;
  /** Engines that each router must be able to use before it counts as started; undefined does not wait. */
  readonly untilEngines: number | undefined;
  /** Aborts the start. */
  readonly signal?: AbortSignal;
}

/**
 * Starts routers one after the other, each linked with the earlier ones. `children` lists the started ones, even after
 * an error.
 */
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

export interface LocalFleetOptions {
  readonly engines: LocalEnginesOptions;
  readonly policy: string;
  /** Number of routers. */
  readonly routers: number;
  readonly sharing: Sharing;
  /** Aborts the start. */
  readonly signal?: AbortSignal;
}

/**
 * Starts simulated engines, and routers in front of them, as child processes. Runs `use` with the routers' URLs, and
 * ends them afterwards, even after an error.
 */
export async function withLocalFleet<Result>(
  options: LocalFleetOptions,
  use: (routerUrls: readonly string[]) => Promise<Result>,
): Promise<Result> {
  const children: Child<unknown>[] = [];
  try {
    const engines = await startLocalEngines(options.engines);
    children.push(engines);
    const engineUrls = engines.listening.engines.map((engine) => engine.url);
    const routers = await startRouters(
      {
        count: options.routers,
        sharing: options.sharing,
        optionsOf: () => ({
          ...{ engineUrls, policy: options.policy, port: 0, adminPort: 0 },
          ...(options.engines.tokenizer === undefined ? {} : { tokenizer: options.engines.tokenizer }),
        }),
        untilEngines: engineUrls.length,
        ...(options.signal ? { signal: options.signal } : {}),
      },
      children,
    );
    return await use(routers.map(({ url }) => url));
  } finally {
    await Promise.all(children.reverse().map((child) => child.stop()));
  }
}
