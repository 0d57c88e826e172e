import { type LocalEnginesOptions, startLocalEngines } from "./local-fleet.ts";
import type { Child } from "./start-child.ts";
import { type Sharing, startRouters } from "./start-routers.ts";

export interface LocalFleetOptions {
  readonly engines: LocalEnginesOptions;
  readonly policy: string;
  /** Routers beside each other. */
  readonly routers: number;
  readonly sharing: Sharing;
  /** Gives up starting. */
  readonly signal?: AbortSignal;
}

/**
 * Starts simulated engines and routers in front of them as child processes, runs `use` with the routers' URLs, and
 * ends them, however `use` ends.
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
        optionsOf: () => ({ engineUrls, policy: options.policy, port: 0, adminPort: 0 }),
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
