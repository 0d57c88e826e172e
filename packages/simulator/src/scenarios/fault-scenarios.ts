import type { FaultName } from "../faults/fault-plan.ts";
import type { Scenario } from "./scenario.ts";
import { smg240With } from "./smg-240.ts";

/** A quarter of the source's fleet, so that the real links of eight routers can be run. */
const engines = 60;

/** What happens in the middle of the run; the scenario has the fault's name. */
const faultSummaries = {
  partition: "A quarter of smg-240 while its routers are cut into two halves.",
  "router-loss": "A quarter of smg-240 while one of its routers is killed and comes back.",
  "join-under-load": "A quarter of smg-240 while a router joins.",
  "rolling-restart": "A quarter of smg-240 while its routers restart one after the other.",
  "engine-churn": "A quarter of smg-240 while engines go and come back empty.",
} as const satisfies Partial<Record<FaultName, string>>;

const faults = Object.keys(faultSummaries) as readonly (keyof typeof faultSummaries)[];

export const faultScenarios: readonly Scenario[] = faults.map((fault) =>
  smg240With({
    ...{ name: fault, summary: faultSummaries[fault], fault, policies: ["predicted_latency"], published: [] },
    ...{ engines, isPerEngine: true },
  }),
);
