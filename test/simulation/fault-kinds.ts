import type { FaultWorld } from "./fault-world.ts";
import { linkFaults } from "./link-faults.ts";
import { processFaults } from "./process-faults.ts";

/**
 * Everything that may go wrong, by name; each begins to do so when it is called. Links are TCP connections, which lose,
 * double and reorder nothing while they live. So loss is a connection that breaks with what was on its way (`breaks`), and
 * doubles are whole updates of documents that come again (`duplicates`; made by the ports of the replica).
 */
export const faultKinds = { ...linkFaults, ...processFaults, duplicates: () => {} } satisfies Record<
  string,
  (world: FaultWorld) => void
>;

export type FaultKind = keyof typeof faultKinds;

export const faultKindNames = Object.keys(faultKinds) as readonly FaultKind[];
