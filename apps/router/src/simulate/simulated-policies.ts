import { policyNames } from "@espalier/policies";
import { clusterIp } from "@espalier/simulator";

/** What can be compared in a simulation. */
export const simulatedPolicies: readonly string[] = [...policyNames, clusterIp];

/** Whether a policy's decisions depend on nothing that routers share. */
export function isBlind(policy: string): boolean {
  return policy === "random" || policy === "round_robin" || policy === clusterIp;
}
