import { fileURLToPath } from "node:url";
import { type Child, startChild, startLocalRouter, untilReady } from "@espalier/router";
import { type CorePlan, pinProcess } from "../support/cpu-pinning.ts";
import type { System } from "../support/measure-load.ts";
import type { WaitPorts } from "../support/until.ts";
import type { InstalledPeer } from "./install-peer.ts";
import { cacheAware, roundRobin } from "./products.ts";
import { startPeer } from "./start-peer.ts";

/** A system under load, with its process. */
export interface RunningContender {
  readonly system: System & { readonly pid: number };
  stop(): Promise<void>;
}

/** One product of the comparison, ours among them. */
export interface Contender {
  readonly name: string;
  readonly version: string;
  /** The policy of all loads. */
  readonly policy: string;
  /** Whether the short loads are repeated under round robin. */
  readonly alsoRoundRobin: boolean;
  /** @throws Error when it does not start */
  start(engineUrls: readonly string[], policy: string): Promise<RunningContender>;
}

/** The router of this tree, by its name in rows. */
export const ownName = "espalier";
/** The proxy without logic. */
export const bareName = "bare";

export interface ContenderPorts extends WaitPorts {
  readonly plan: CorePlan | undefined;
}

/** `espalier serve` with its default of one process. */
export function ownContender({ plan }: ContenderPorts): Contender {
  return {
    name: ownName,
    version: "this tree",
    policy: cacheAware,
    alsoRoundRobin: true,
    async start(engineUrls, policy) {
      const router = await startLocalRouter({
        engineUrls,
        policy,
        port: 0,
        adminPort: 0,
        arguments: ["--log-level", "warn"],
      });
      const running = runningChild(ownName, router, router.listening.url, plan);
      await untilReady(router.listening, engineUrls.length).catch(async (thrown: unknown) => {
        await running.stop();
        throw thrown;
      });
      return running;
    },
  };
}

/** `node:http` and undici with nothing in between. */
export function bareContender({ plan }: ContenderPorts): Contender {
  return {
    name: bareName,
    version: `Node ${process.versions.node}`,
    policy: roundRobin,
    alsoRoundRobin: false,
    async start(engineUrls) {
      const proxy = await startChild<{ readonly url: string }>({
        name: "the bare proxy",
        program: fileURLToPath(new URL("../programs/bare-proxy.js", import.meta.url)),
        arguments: engineUrls,
      });
      return runningChild(bareName, proxy, proxy.listening.url, plan);
    },
  };
}

export function peerContender(peer: InstalledPeer, { plan, ...ports }: ContenderPorts): Contender {
  const { name, policy, alsoRoundRobin } = peer.product;
  return {
    name,
    version: peer.version,
    policy,
    alsoRoundRobin,
    async start(engineUrls, givenPolicy) {
      const { url, pid, stop } = await startPeer(peer, { engineUrls, policy: givenPolicy, plan }, ports);
      return { system: { name, urls: [url], pid }, stop };
    },
  };
}

function runningChild(name: string, child: Child<unknown>, url: string, plan: CorePlan | undefined): RunningContender {
  const { pid = 0 } = child.process;
  if (plan) pinProcess(pid, plan.router);
  return { system: { name, urls: [url], pid }, stop: child.stop };
}
