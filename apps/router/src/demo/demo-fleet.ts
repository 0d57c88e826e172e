import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { shippedModelFolder } from "@espalier/tokenizer";
import { writeNote } from "../output.ts";
import { startLocalEngines } from "../processes/local-fleet.ts";
import { type Child, type RouterListening, untilReady } from "../processes/start-child.ts";
import { startRouters } from "../processes/start-routers.ts";
import { wasStopped } from "../signals.ts";
import type { DemoOptions } from "./demo-options.ts";

export const simulatedModel = "sim-model";

/** The engines of a demo, as its routers are told of them. */
export interface DemoEngines {
  readonly engineUrls: readonly string[];
  /** Describes engines that lend each other blocks. */
  readonly enginesFile?: string;
}

export async function startEngines(
  options: DemoOptions,
  folder: () => string,
  children: Child<unknown>[],
): Promise<DemoEngines> {
  const engines = await startLocalEngines({
    count: options.engines,
    preset: options.preset,
    model: options.model ?? simulatedModel,
    speed: 1,
    port: options.enginePort,
    kvEvents: true,
    ...(options.pulls ? { lendsBlocks: true } : {}),
    tokenizer: shippedModelFolder(),
  });
  children.push(engines);
  const { engines: listening } = engines.listening;
  const engineUrls = listening.map(({ url }) => url);
  if (!options.pulls) return { engineUrls };
  const enginesFile = join(folder(), "engines.json");
  const entries = listening.map(({ url, p2pPort }) => ({ url, "kv-pull": { port: p2pPort } }));
  writeFileSync(enginesFile, JSON.stringify({ engines: entries }));
  return { engineUrls, enginesFile };
}

export function startDemoRouters(
  { routers: count, sharing, policy, port, adminPort, engineUrls: given, envoy }: DemoOptions,
  engines: DemoEngines,
  children: Child<unknown>[],
  signal: AbortSignal,
): Promise<readonly RouterListening[]> {
  return startRouters(
    {
      ...{ count, sharing, signal },
      untilEngines: given === undefined ? engines.engineUrls.length : undefined,
      optionsOf: (index) => ({
        ...engines,
        policy,
        // The user's own engines have a tokenizer that the router lacks, so it matches their prompts by bytes.
        ...(given === undefined ? { tokenizer: shippedModelFolder() } : {}),
        arguments: ["--demo"],
        ...(envoy ? { isPicker: true } : {}),
        port: port === 0 ? 0 : port + index,
        adminPort: adminPort === 0 ? 0 : adminPort + index,
      }),
    },
    children,
  );
}

/** The model name for requests: the user's own engines may not be up yet, and serve models of their own. */
export async function servedModel(
  { engineUrls }: DemoOptions,
  router: RouterListening,
  stop: AbortSignal,
): Promise<string> {
  if (engineUrls === undefined) return simulatedModel;
  try {
    const { models } = await untilReady(router, 1, stop);
    return models[0] ?? "your-model";
  } catch (error) {
    if (!stop.aborted) writeNote(`${error instanceof Error ? error.message : error}; going on without`);
    return "your-model";
  }
}

/** The user may kill routers to watch the result, as long as one remains. */
export function watchRouters(
  routers: readonly RouterListening[],
  children: readonly Child<unknown>[],
  stop: AbortSignal,
): { readonly urls: () => readonly string[]; readonly allGone: Promise<void> } {
  const urls = new Set(routers.map(({ url }) => url));
  const ends = children.map(async ({ exited }, at) => {
    await exited;
    const { url = "" } = routers[at] ?? {};
    urls.delete(url);
    if (urls.size > 0 && !(await wasStopped(stop))) writeNote(`the router at ${url} is gone; ${urls.size} go on`);
  });
  return { urls: () => [...urls], allGone: Promise.all(ends).then(() => {}) };
}
