import { fileURLToPath } from "node:url";
import { type Child, startChild, startLocalRouter, untilReady } from "@espalier/router";
import { shippedModelFolder } from "@espalier/tokenizer";
import { startEngine } from "../support/bench-engine-child.ts";
import { availableCores, type CorePlan, pinProcess, planCores } from "../support/cpu-pinning.ts";
import type { System } from "../support/measure-load.ts";

/** What one run measures: the engines alone, the bare proxy in front of them, and the router. */
export interface ProxyFleet {
  readonly systems: readonly [direct: System, bare: System, espalier: System];
  /** A second router, which tokenizes. */
  readonly tokenSystem: System;
  readonly engineMetricsUrl: string;
  stop(): Promise<void>;
}

/** One that looks at caches, so that what is measured is what peers with such a policy do. */
export const measuredPolicy = "cache_aware";

/** Gives this process and all that it starts from now on every core but the one that is measured. */
export function reserveCore(): CorePlan | undefined {
  const plan = planCores(availableCores());
  if (plan) pinProcess(process.pid, plan.others);
  return plan;
}

/**
 * Starts the engine, the bare proxy and `espalier serve` as child processes; the two that are measured run on the core
 * that the plan keeps for them.
 */
export async function startProxyFleet(plan: CorePlan | undefined): Promise<ProxyFleet> {
  const children: Child<unknown>[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(children.splice(0).map((child) => child.stop()));
  };
  const keep = <Listening>(child: Child<Listening>, measured: boolean): Child<Listening> => {
    children.push(child);
    if (measured && plan && child.process.pid !== undefined) pinProcess(child.process.pid, plan.router);
    return child;
  };
  try {
    const engine = keep(await startEngine(), false);
    const { urls } = engine.listening;
    const bare = keep(await startBare(urls), true);
    const router = keep(await startRouter(urls), true);
    await untilReady(router.listening, urls.length);
    const tokens = keep(await startRouter(urls, shippedModelFolder()), true);
    await untilReady(tokens.listening, urls.length);
    const engineMetricsUrl = `${urls[0]}/metrics`;
    return {
      systems: [
        { name: "direct", urls },
        { name: "bare", urls: [bare.listening.url], metricsUrl: `${bare.listening.url}/metrics` },
        { name: "espalier", urls: [router.listening.url], metricsUrl: `${router.listening.adminUrl}/metrics` },
      ],
      tokenSystem: {
        name: "espalier with tokens",
        urls: [tokens.listening.url],
        metricsUrl: `${tokens.listening.adminUrl}/metrics`,
      },
      engineMetricsUrl,
      stop,
    };
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

function startBare(engineUrls: readonly string[]): Promise<Child<{ readonly url: string }>> {
  return startChild({
    name: "the bare proxy",
    program: fileURLToPath(new URL("../programs/bare-proxy.js", import.meta.url)),
    arguments: engineUrls,
  });
}

/** @param tokenizer without one, prompts are cut over their bytes */
function startRouter(engineUrls: readonly string[], tokenizer?: string): ReturnType<typeof startLocalRouter> {
  return startLocalRouter({
    engineUrls,
    policy: measuredPolicy,
    ...(tokenizer === undefined ? {} : { tokenizer }),
    port: 0,
    adminPort: 0,
    arguments: ["--log-level", "warn"],
  });
}
