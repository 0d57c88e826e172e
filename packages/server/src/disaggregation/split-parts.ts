import type { Clock, HttpClient, Meter } from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";
import type { NoteChannel } from "@espalier/replication";
import { createFleetRoles, createSplitMetrics, PairPlanner, type TargetSelector } from "@espalier/routing";
import type { EngineRecord, Fleet, Target } from "@espalier/workers";
import { createPeerIds, type PeerIds } from "./peer-ids.ts";

/** What requests that two engines serve share. */
export interface SplitParts {
  readonly planner: PairPlanner<Target>;
  readonly peers: PeerIds;
  /** Which side an engine of role `both` keeps to; undefined where it does not. */
  dutyOf(engine: EngineRecord): "prefill" | "decode" | undefined;
}

export interface SplitPartsOptions {
  readonly config: Pick<CompiledConfig, "disaggregation">;
  readonly clock: Clock;
  readonly http: HttpClient;
  readonly fleet: Fleet;
  readonly meter: Meter;
  readonly selector: TargetSelector;
  /** Decides as `selector` does, of requests that are not sent. */
  readonly quietSelector: TargetSelector;
  /** Where routers tell each other what they see of the work of roles; undefined where they do not. */
  readonly board?: NoteChannel | undefined;
}

export function createSplitParts(options: SplitPartsOptions): SplitParts {
  const { config, clock, http, fleet, meter, selector, quietSelector, board } = options;
  const planner = new PairPlanner<Target>({
    ...{ selector, quietSelector, limits: config.disaggregation, metrics: createSplitMetrics(meter) },
    roles: createFleetRoles(clock, board),
    roleModel: (model) => fleet.model(model)?.parent ?? model,
  });
  return {
    planner,
    peers: createPeerIds({ http, fleet }),
    dutyOf: (engine) => planner.dutyOf(engine, engine.models?.find(({ parent }) => parent === undefined)?.id),
  };
}
