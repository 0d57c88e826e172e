import { systemClock, systemScheduler } from "@espalier/core";
import { startBenchEngine } from "../data-path/bench-engine.ts";
import { bareContender, bareName, ownContender, ownName, thisNode } from "../data-path/contenders.ts";
import {
  agentMessages,
  agentTools,
  largeMessages,
  loadParams,
  longBodyBytes,
  newTurnBytes,
} from "../data-path/loads.ts";
import {
  type DataPathRun,
  measureDataPath,
  type SharesByLoad,
  saturationWarnings,
} from "../data-path/measure-data-path.ts";
import { installReleases, nodeParam } from "../data-path/node-releases.ts";
import { cacheAware } from "../peers/products.ts";
import { priorityParam, reserveCore } from "../support/cpu-pinning.ts";
import type { Figures } from "../support/median-spread.ts";
import { positive, quick, runs } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, joinRuns } from "../support/suite.ts";

/** Results of one run. */
export interface ProxyRun {
  /** By name; further Node releases of the router come last. */
  readonly systems: Readonly<Record<string, Figures>>;
  readonly shares: SharesByLoad;
}

/** The data path: CPU, latency and memory of the router and of a bare proxy. */
export const proxySuite = defineSuite({
  name: "proxy",
  summary: "CPU, latency, memory and garbage per request of the data path, beside a bare proxy",
  about: `
What a request costs between client and engine: at a bare proxy of node:http and undici, and at \`espalier serve\`, each in
fresh processes on one core, with load generator and engine on the others. These two are C programs, compiled by cc.
The router looks at caches, by the bytes of prompts; \`token_\` figures are of one that tokenizes turns of a conversation.
\`cold\` figures are of the first requests of a process, the others of one that has had them.`,
  params: {
    node: nodeParam,
    duration: positive({
      help: "seconds of each closed loop; paced streams take 1.5 times and latencies twice as long",
      ...{ standard: 1.5, quick: 0.6, most: 1_000 },
    }),
    priority: priorityParam,
    runs: runs(3, 1_000, "runs with fresh processes, of which the medians count"),
    quick: quick(),
  },
  async measure({ node, duration, priority, runs, quick }, note) {
    const releases = await installReleases(node);
    const plan = reserveCore(priority);
    note(plan ? `pinned: routers on core ${plan.router.join(",")}` : "not pinned: no taskset, or only one core");
    const ports = { clock: systemClock, scheduler: systemScheduler, plan };
    const contenders = [
      bareContender(ports),
      ownContender(ports),
      ownContender(ports, thisNode, true),
      ...releases.map((release) => ownContender(ports, release)),
    ];
    const sizes = {
      durationMs: duration * 1_000,
      coldRequests: quick ? 10_000 : 55_000,
      growthWarmUpRequests: quick ? 2_000 : 5_000,
      largeWarmUpRequests: quick ? 500 : 4_000,
      turnWarmUpRequests: quick ? 1_000 : 4_000,
    };
    const engine = await startBenchEngine();
    try {
      const done = await repeatRuns({ runs, note }, async (seed, noteRun) => {
        const options = { contenders, engine, sizes, isRoundRobinToo: false, isCheckedByWrk: false, note: noteRun };
        return proxyRun(await measureDataPath(options, seed));
      });
      const params = {
        ...{ runs, ...sizes, ...loadParams, large_messages: largeMessages, pinned: plan !== undefined },
        ...{ policy: cacheAware, new_turn_bytes: newTurnBytes, agent_body_bytes: longBodyBytes },
        ...{ agent_messages: agentMessages, agent_tools: agentTools, node: process.versions.node },
      };
      return { params, ...proxyReport(done, plan?.others.length) };
    } finally {
      await engine.stop();
    }
  },
});

/**
 * Selects the figures of the systems from those of all contenders.
 *
 * @throws Error when one has failed
 */
export function proxyRun({ direct, outcomes, shares }: DataPathRun): ProxyRun {
  const known = new Map<string, Figures>();
  for (const [name, outcome] of outcomes) {
    if ("failure" in outcome) throw new Error(outcome.failure);
    known.set(name, outcome.figures);
  }
  const systems = {
    [ownName]: { ...known.get(ownName), ...known.get(`${ownName} with tokens`) },
    bare: known.get(bareName) ?? {},
    direct,
    ...Object.fromEntries([...known].filter(([name]) => name.startsWith(`${ownName}@`))),
  };
  return { systems, shares };
}

/** @param otherCores cores of load generator and engine; undefined when nothing is pinned */
export function proxyReport(runs: readonly ProxyRun[], otherCores: number | undefined) {
  return {
    ...joinRuns(runs.map(({ systems }) => systems)),
    shares: runs.map(({ shares }) => shares),
    warnings: saturationWarnings(runs, otherCores),
  };
}
