import { type FaultName, faultNames } from "../faults/fault-plan.ts";
import type { Scenario } from "./scenario.ts";
import { smg240With } from "./smg-240.ts";

/** What happens in the middle of the run; the scenario has the fault's name. */
const faultSummaries: Readonly<Record<FaultName, string>> = {
  partition: "smg-240 while its routers are cut into two halves.",
  "router-loss": "smg-240 while one of its routers is killed and comes back.",
  "join-under-load": "smg-240 while a router joins.",
  "rolling-restart": "smg-240 while its routers restart one after the other.",
  "engine-churn": "smg-240 while engines go and come back empty.",
};

export const faultScenarios: readonly Scenario[] = faultNames.map((fault) =>
  smg240With({ name: fault, summary: faultSummaries[fault], fault, policies: ["least_work"], published: [] }),
);
