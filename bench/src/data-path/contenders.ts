import { closeSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { shippedModelFolder } from "@espalier/tokenizer";
import {
  type Child,
  type ProgramOptions,
  type RouterListening,
  startChild,
  startLocalRouter,
  untilReady,
} from "espalier-router";
import type { InstalledPeer } from "../peers/install-peer.ts";
import { cacheAware, roundRobin } from "../peers/products.ts";
import { startPeer } from "../peers/start-peer.ts";
import { type CorePlan, pinProcess } from "../support/cpu-pinning.ts";
import { routerProgram } from "../support/router-program.ts";
import { untilNothingMissing, type WaitPorts } from "../support/until.ts";
import type { System } from "./measure-load.ts";

/** A system under load, with its process. */
export interface RunningContender {
  readonly system: System & { readonly pid: number };
  stop(): Promise<void>;
}

/** @param traceFile descriptor that receives V8's report of its collections; the callee closes it */
export type StartTraced = (engineUrls: readonly string[], traceFile: number) => Promise<RunningContender>;

/** One product in the comparison, including ours. */
export interface Contender {
  readonly name: string;
  readonly version: string;
  /** The policy for all loads. */
  readonly policy: string;
  /** Whether it is measured only with turns of a conversation. */
  readonly isTokenized?: boolean;
  /** @throws Error when it does not start */
  start(engineUrls: readonly string[], policy: string): Promise<RunningContender>;
  /** The same with a trace of garbage collections, if it runs in Node. */
  readonly startTraced?: StartTraced;
}

const readyTimeoutMs = 10_000;
/** The router of this tree, by its name in rows. */
export const ownName = "espalier";
/** The proxy without routing logic. */
export const bareName = "bare";

export interface ContenderPorts extends WaitPorts {
  readonly plan: CorePlan | undefined;
}

/** The Node release to run in: this one without a program. */
export interface NodeRelease {
  /** For example `24`; empty for this one. */
  readonly name: string;
  readonly version: string;
  readonly program?: string;
}

export const thisNode: NodeRelease = { name: "", version: process.versions.node };

/** `espalier serve` with its default of one process. @param isTokenized uses the shipped tokenizer instead of bytes */
export function ownContender(
  { plan, ...ports }: ContenderPorts,
  node: NodeRelease = thisNode,
  isTokenized = false,
): Contender {
  const name = nameAt(isTokenized ? `${ownName} with tokens` : ownName, node);
  const start = async (engineUrls: readonly string[], policy: string, runBy: ProgramOptions) => {
    const router = await startLocalRouter({
      engineUrls,
      policy,
      port: 0,
      adminPort: 0,
      arguments: ["--log-level", "warn"],
      ...(isTokenized ? { tokenizer: shippedModelFolder() } : {}),
      runBy: { ...routerProgram, ...runBy },
    });
    const running = runningChild(name, router, router.listening.url, plan);
    await untilServing(router.listening, engineUrls.length, ports).catch(async (thrown: unknown) => {
      await running.stop();
      throw thrown;
    });
    return running;
  };
  return {
    name,
    version: `this tree, Node ${node.version}`,
    policy: cacheAware,
    isTokenized,
    start: (engineUrls, policy) => start(engineUrls, policy, programOf(node)),
    startTraced: (engineUrls, file) => traced(file, node, (options) => start(engineUrls, cacheAware, options)),
  };
}

/** Only `node:http` and undici. */
export function bareContender({ plan }: ContenderPorts, node: NodeRelease = thisNode): Contender {
  const name = nameAt(bareName, node);
  const start = async (engineUrls: readonly string[], options: ProgramOptions): Promise<RunningContender> => {
    const proxy = await startChild<{ readonly url: string }>({
      name: "the bare proxy",
      program: fileURLToPath(new URL("../programs/bare-proxy.ts", import.meta.url)),
      arguments: engineUrls,
      ...options,
    });
    return runningChild(name, proxy, proxy.listening.url, plan);
  };
  return {
    name,
    version: `Node ${node.version}`,
    policy: roundRobin,
    start: (engineUrls) => start(engineUrls, programOf(node)),
    startTraced: (engineUrls, file) => traced(file, node, (options) => start(engineUrls, options)),
  };
}

export function peerContender(peer: InstalledPeer, { plan, ...ports }: ContenderPorts): Contender {
  const { name, policy } = peer.product;
  return {
    name,
    version: peer.version,
    policy,
    async start(engineUrls, givenPolicy) {
      const { url, pid, stop } = await startPeer(peer, { engineUrls, policy: givenPolicy, plan }, ports);
      return { system: { name, urls: [url], pid }, stop };
    },
  };
}

/** Waits as a load balancer does. */
async function untilServing(listening: RouterListening, engines: number, ports: WaitPorts): Promise<void> {
  await untilReady(listening, engines);
  const missing = async () =>
    (await fetch(`${listening.adminUrl}/readyz`)).ok ? undefined : `${listening.adminUrl} is not ready`;
  await untilNothingMissing(missing, readyTimeoutMs, ports);
}

function nameAt(name: string, node: NodeRelease): string {
  return node.name === "" ? name : `${name}@${node.name}`;
}

function programOf({ program }: NodeRelease): ProgramOptions {
  return program === undefined ? {} : { nodeProgram: program };
}

async function traced(
  file: number,
  node: NodeRelease,
  start: (options: ProgramOptions) => Promise<RunningContender>,
): Promise<RunningContender> {
  try {
    return await start({ ...programOf(node), nodeFlags: ["--trace-gc"], output: file });
  } finally {
    closeSync(file);
  }
}

function runningChild(name: string, child: Child<unknown>, url: string, plan: CorePlan | undefined): RunningContender {
  const { pid = 0 } = child.process;
  if (plan) pinProcess(pid, plan.router);
  return { system: { name, urls: [url], pid }, stop: child.stop };
}
