import type { Scenario } from "./scenario.ts";
import { smg240With } from "./smg-240.ts";

/** As many as one mesh is made for, with engines for each cell as smg-240 has for a router. */
const cell = { routers: 64, engines: 2_500 } as const;
const cells = 4;

/** Virtual seconds: enough for some 700,000 conversations. */
const durationS = 20;

const clients = smg240With({
  name: "mega",
  summary: "Four cells of 64 routers and 2,500 engines each behind one name, with the clients of smg-240.",
  policies: ["random", "predicted_latency"],
  published: [],
  ...{ engines: cells * cell.engines, isPerEngine: true },
});

export const mega: Scenario = {
  ...clients,
  fleet: { ...clients.fleet, routers: cells * cell.routers, cells: { count: cells, balancer: "hash" } },
  durationS,
  variants: [
    { name: "dns", cells: { count: cells, balancer: "dns" } },
    { name: "one-mesh", ...cell, cells: { count: 1, balancer: "hash" } },
  ],
  createWorkload: (options) =>
    clients.createWorkload(
      options.requests === undefined ? { ...options, durationS: options.durationS ?? durationS } : options,
    ),
};
