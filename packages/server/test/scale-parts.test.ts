import { silentMeter } from "@espalier/core";
import { createPolicy, defaultObjectives } from "@espalier/policies";
import type { WaitingWork } from "@espalier/routing";
import { createFleetLearning } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { RouterContext } from "../src/router-context.ts";
import { createPools } from "../src/routing/pools.ts";
import { createScaleParts } from "../src/scale/scale-parts.ts";

test("the demand for a model counts the requests that wait for its adapters, each once", async () => {
  const { clock, scheduler, advance } = createVirtualTime();
  const learning = createFleetLearning({ channel: undefined, clock, scheduler, meter: silentMeter });
  const fleet = { model: (id: string) => ({ id, parent: id === "base" ? undefined : "base" }), pool: () => [] };
  const rule = {
    ...{ models: ["*"], policyText: "random", createPolicy: () => createPolicy("random") },
    ...{
      upstreamHeaders: [],
      forwardAuthorization: false,
      holdMs: 0,
      objectivesOf: () => defaultObjectives,
      defaultClass: "default",
    },
  };
  const pools = createPools([rule], (model) => learning.workOf(fleet.model(model).parent ?? model));
  const waits: WaitingWork = { uncachedTokens: 100, outputTokens: 10, leaveInMs: 1_000 };
  const queued: Record<string, number> = { base: 1, "adapter-1": 2, "adapter-2": 0, "adapter-3": 4 };
  const admission = {
    of: ({ model }: { readonly model: string }) => ({ backlog: () => Array(queued[model]).fill(waits) }),
  };
  const context = { admission, clock, fleet, learning, mesh: undefined, pools, scheduler } as unknown as RouterContext;
  for (const model of Object.keys(queued)) pools.settingsFor(model).work.demand.arrived(100);
  const noListener = { host: "127.0.0.1", port: undefined, tls: undefined };
  const config = { utilization: 0.8, catchUpMs: 10_000, idleMs: 60_000, ...noListener };
  const scale = createScaleParts(config, context, silentMeter);
  await scale.start();
  advance(2_000);
  const { models } = scale.describe();
  expect(models.map(({ model, waiting }) => ({ model, waiting }))).toEqual([{ model: "base", waiting: 7 }]);
  await scale.stop();
});
