import { get } from "node:http";
import { systemClock, systemScheduler } from "@espalier/common";
import { type LocalEnginesOptions, startLocalEngines, startLocalRouter } from "./local-fleet.ts";
import type { Child } from "./start-child.ts";

export interface LocalFleetOptions {
  readonly engines: LocalEnginesOptions;
  readonly policy: string;
  /** Routers beside each other; they share nothing. */
  readonly routers: number;
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
      await untilReady(router.listening.url);
    }
    return await use(routerUrls);
  } finally {
    await Promise.all(children.reverse().map((child) => child.stop()));
  }
}

const readyTimeoutMs = 10_000;
const askEveryMs = 20;

/** Waits until a router says that it has engines. */
export async function untilReady(routerUrl: string): Promise<void> {
  const deadlineMs = systemClock.nowMs() + readyTimeoutMs;
  for (;;) {
    const ready = await isReady(routerUrl);
    if (ready) return;
    if (systemClock.nowMs() > deadlineMs) throw new Error(`the router at ${routerUrl} found no engine`);
    await new Promise<void>((resolve) => systemScheduler.after(askEveryMs, resolve));
  }
}

/** Whether the models of all engines are known too, so that the first request does not find half a fleet. */
function isReady(routerUrl: string): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get(`${routerUrl}/readyz`, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    request.on("error", () => resolve(false));
  });
}
