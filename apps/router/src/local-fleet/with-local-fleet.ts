import { type LocalEnginesOptions, startLocalEngines, startLocalRouter } from "./local-fleet.ts";
import type { Child } from "./start-child.ts";
import { untilReady } from "./until-ready.ts";

export interface LocalFleetOptions {
  readonly engines: LocalEnginesOptions;
  readonly policy: string;
  /** Routers beside each other; they share nothing. */
  readonly routers: number;
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
    const routerUrls: string[] = [];
    for (let index = 0; index < options.routers; index++) {
      const router = await startLocalRouter({ engineUrls, policy: options.policy, port: 0, adminPort: 0 });
      children.push(router);
      routerUrls.push(router.listening.url);
      await untilReady(router.listening, engineUrls.length, options.signal);
    }
    return await use(routerUrls);
  } finally {
    await Promise.all(children.reverse().map((child) => child.stop()));
  }
}
