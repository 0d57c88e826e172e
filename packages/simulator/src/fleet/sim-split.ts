import { type Clock, silentMeter } from "@espalier/common";
import type { SplitThresholdOptions } from "@espalier/disaggregation";
import type { ImportedPrompt } from "@espalier/engine-model";
import type { NoteChannel } from "@espalier/replication";
import { createFleetRoles, createSplitMetrics, PairPlanner, type TargetSelector } from "@espalier/routing";
import type { SimTarget } from "./sim-target.ts";

/** What moving KV blocks from any engine to any other one takes. */
export type KvLink = Pick<ImportedPrompt, "setupMs" | "msPerToken">;

/** How requests are split between two engines: in two legs one after the other, as NIXL does. */
export interface SplitSettings extends SplitThresholdOptions {
  readonly link: KvLink;
  /** Whether engines of role `both` keep to one side each, as many as the mix of requests asks for. */
  readonly appliesBalance?: boolean;
}

export interface SimPlannerOptions {
  readonly settings: SplitSettings;
  readonly clock: Clock;
  readonly selector: TargetSelector;
  /** One whose choices nothing is expected to follow from. */
  readonly quietSelector: TargetSelector;
  /** Where routers tell each other of the work of roles; undefined where they do not. */
  readonly notes: NoteChannel | undefined;
}

export function createSimPlanner({ settings, clock, notes, ...selectors }: SimPlannerOptions): PairPlanner<SimTarget> {
  return new PairPlanner({
    ...selectors,
    limits: { ...settings, appliesRoleBalance: settings.appliesBalance ?? false },
    roles: createFleetRoles(clock, notes),
    metrics: createSplitMetrics(silentMeter),
  });
}

/** @param bytesPerS of a link from one engine to another */
export function kvLinkOf(
  { setupMs, bytesPerS }: { readonly setupMs: number; readonly bytesPerS: number },
  kvBytesPerToken: number,
): KvLink {
  return { setupMs, msPerToken: (1_000 * kvBytesPerToken) / bytesPerS };
}
