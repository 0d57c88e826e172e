import { spawnSync } from "node:child_process";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type BenchEngine, startBareProxy, startBenchEngine } from "@espalier/bench";
import { silentLogger } from "@espalier/core";
import { createRouter, type FlagValues, loadConfig, type Router } from "@espalier/server";
import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import type { Contender } from "../src/data-path/contenders.ts";
import type { LoadSizes } from "../src/data-path/loads.ts";

/** Something to end after a test. */
export interface Stoppable {
  stop(): Promise<unknown>;
}

/** Whether engine and load generator can be compiled. */
export const hasCompiler: boolean = spawnSync("cc", ["--version"]).status === 0;
if (!hasCompiler) {
  process.stderr.write("NOT RUN: engine and load generator of the data path benches; cc is not installed\n");
}

/** Large enough for every figure to exist, and for nothing else. */
export const tinySizes: LoadSizes = {
  durationMs: 60,
  coldRequests: 40,
  growthWarmUpRequests: 10,
  largeWarmUpRequests: 10,
  turnWarmUpRequests: 10,
};

/** Something of this process as a contender; how often it was stopped is counted. */
export function contenderAt(name: string, url: string, more: Partial<Contender> = {}) {
  const counts = { started: 0, stopped: 0 };
  const contender: Contender = {
    name,
    version: "here",
    policy: "cache_aware",
    async start() {
      counts.started += 1;
      return {
        system: { name, urls: [url], pid: process.pid },
        stop: async () => {
          counts.stopped += 1;
        },
      };
    },
    ...more,
  };
  return { contender, counts };
}

/** What the suites measure, inside the test's own process: engines, the bare proxy, the router with and without tokens. */
export async function startSystemsInProcess(keep: (part: Stoppable) => void): Promise<{
  readonly engine: BenchEngine;
  readonly bareUrl: string;
  readonly routerUrl: string;
  readonly tokenUrl: string;
}> {
  const engine = await startBenchEngine(2);
  keep(engine);
  const bare = await startBareProxy(engine.urls);
  keep(bare);
  const router = await startRouter(engine.urls);
  keep(router);
  const tokens = await startRouter(engine.urls, { "--tokenizer": shippedModelFolder() });
  keep(tokens);
  return { engine, bareUrl: bare.url, routerUrl: router.url, tokenUrl: tokens.url };
}

async function startRouter(engineUrls: readonly string[], more: FlagValues = {}): Promise<Router> {
  const flags = { "--listen-port": "0", "--admin-port": "0", "--engine": engineUrls, ...more };
  const router = createRouter({ config: loadConfig({ flags }), logger: silentLogger });
  await router.start();
  await waitFor(() => router.readiness().ready, { what: "a usable engine" });
  return router;
}

/** A server that gives every request the same answer, right or wrong. */
export async function startAnswering(
  answer: Parameters<typeof createServer>[1],
  keep: (part: Stoppable) => void,
): Promise<string> {
  const server: Server = createServer(answer as never);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  keep({
    stop: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
