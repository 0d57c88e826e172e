import { adapterState, type CandidateSet } from "@espalier/policies";
import type { RoutingTarget } from "./routing-target.ts";

/** Writes how a target stands to the LoRA adapter that is asked for; nothing where nothing is known, or none is. */
export function addAdapter(
  candidates: CandidateSet,
  index: number,
  target: Pick<RoutingTarget, "adapters">,
  adapter: string | undefined,
): void {
  if (adapter === undefined) return;
  const state = target.adapters.stateOf(adapter);
  if (state !== undefined) candidates.adapterState[index] = adapterState[state];
}
