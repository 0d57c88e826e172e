import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type ProxyFleet, type ProxySizes, type System, startBareProxy, startBenchEngine } from "@espalier/bench";
import { silentLogger, systemScheduler } from "@espalier/common";
import { type FlagValues, loadConfig } from "@espalier/config";
import { createRouter, type Router } from "@espalier/server";
import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";

/** Something to end after a test. */
export interface Stoppable {
  stop(): Promise<unknown>;
}

/** Large enough for every figure to exist, and for nothing else. */
export const tinySizes: ProxySizes = {
  durationMs: 60,
  warmUpMs: 20,
  growthRequests: 40,
  growthWarmUpRequests: 10,
  turnWarmUpRequests: 10,
};

/** The fleet of the suite inside the test's own process: one engine, the bare proxy, the router. */
export async function startFleetInProcess(keep: (part: Stoppable) => void): Promise<ProxyFleet> {
  const engine = await startBenchEngine(2, systemScheduler);
  keep(engine);
  const bare = await startBareProxy(engine.urls);
  keep(bare);
  const router = await startRouter(engine.urls);
  keep(router);
  const systems: readonly [System, System, System] = [
    { name: "direct", urls: engine.urls },
    { name: "bare", urls: [bare.url], metricsUrl: `${bare.url}/metrics` },
    { name: "espalier", urls: [router.url], metricsUrl: `${router.adminUrl}/metrics` },
  ];
  const tokens = await startRouter(engine.urls, { "--tokenizer": shippedModelFolder() });
  keep(tokens);
  const tokenSystem = { name: "tokens", urls: [tokens.url], metricsUrl: `${tokens.adminUrl}/metrics` };
  return { systems, tokenSystem, engineMetricsUrl: `${engine.urls[0]}/metrics`, stop: async () => {} };
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
