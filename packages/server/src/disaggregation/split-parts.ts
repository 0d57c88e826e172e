import type { HttpClient, Meter } from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";
import { createPrefillPolicy, type ProbedPolicy, probePolicy } from "@espalier/disaggregation";
import type { Policy } from "@espalier/policies";
import type { NoteBoard } from "@espalier/replication";
import type { EngineRecord, Fleet, Target } from "@espalier/workers";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { PoolSettings } from "../routing/pools.ts";
import { createFleetRoles, type ModelRoles } from "./fleet-roles.ts";
import { protocolOf, servesAlone } from "./pair-roles.ts";
import { createPeerIds, type PeerIds } from "./peer-ids.ts";
import { createSplitMetrics, type SplitMetrics } from "./split-metrics.ts";

/** What requests that two engines serve share. */
export interface SplitParts {
  readonly options: CompiledConfig["disaggregation"];
  readonly peers: PeerIds;
  readonly metrics: SplitMetrics;
  /** Chooses who prefills for another engine, watched at its choices. */
  readonly prefillProbe: ProbedPolicy;
  /** A pool's own policy, watched at its choices. */
  probeOf(pool: PoolSettings): ProbedPolicy;
  /** Those of the model that the pool is of, or is an adapter of. */
  rolesOf(pool: PoolSettings): ModelRoles;
  /** Looks again which side engines of role `both` are on, where they keep to one. */
  updateDuties(pool: PoolSettings, targets: readonly Target[]): void;
  /** Whether an engine may be on a side, as far as its duty goes. */
  isOnDuty(pool: PoolSettings, engine: EngineRecord, side: "prefill" | "decode"): boolean;
  /** Which side an engine of role `both` keeps to; undefined where it does not. */
  dutyOf(engine: EngineRecord): "prefill" | "decode" | undefined;
  /** Who may serve a request alone: those whose duty it is, as long as there are any that have not been tried. */
  alonePredicate(
    pool: PoolSettings,
    targets: readonly Target[],
    tried: ReadonlySet<string>,
  ): (target: Target) => boolean;
}

export interface SplitPartsOptions {
  readonly config: Pick<CompiledConfig, "disaggregation">;
  readonly clock: RouterContext["clock"];
  readonly http: HttpClient;
  readonly fleet: Fleet;
  readonly meter: Meter;
  /** Where routers tell each other what they see of the work of roles; undefined where they do not. */
  readonly board?: NoteBoard | undefined;
}

export function createSplitParts({ config, clock, http, fleet, meter, board }: SplitPartsOptions): SplitParts {
  const probes = new WeakMap<Policy, ProbedPolicy>();
  const options = config.disaggregation;
  const metrics = createSplitMetrics(meter);
  const roles = createFleetRoles(clock, board);
  const rolesOf = ({ model }: PoolSettings): ModelRoles => roles.of(fleet.model(model)?.parent ?? model);
  const isOnDuty: SplitParts["isOnDuty"] = (pool, engine, side) =>
    !options.appliesRoleBalance || !hasDuty(engine) || rolesOf(pool).duties.allows(engine, side);
  return {
    options,
    peers: createPeerIds({ http, fleet }),
    metrics,
    prefillProbe: probePolicy(createPrefillPolicy()),
    probeOf({ policy }) {
      const known = probes.get(policy) ?? probePolicy(policy);
      probes.set(policy, known);
      return known;
    },
    rolesOf,
    isOnDuty,
    dutyOf(engine) {
      if (!options.appliesRoleBalance || !hasDuty(engine)) return undefined;
      const model = engine.models?.find(({ parent }) => parent === undefined);
      return model && roles.of(model.id).duties.dutyOf(engine);
    },
    updateDuties(pool, targets) {
      if (!options.appliesRoleBalance) return;
      const { duties, balance } = rolesOf(pool);
      const engines = (): EngineRecord[] => [
        ...new Set(targets.filter(({ usable }) => usable).map(({ engine }) => engine)).values(),
      ];
      duties.update(() => engines().filter(hasDuty), balance.prefillShare);
      if (duties.prefillCount !== undefined) metrics.duties(pool.model, duties.prefillCount);
    },
    alonePredicate(pool, targets, tried) {
      if (!options.appliesRoleBalance) return servesAlone;
      const onDuty = (target: Target): boolean => servesAlone(target) && isOnDuty(pool, target.engine, "decode");
      return targets.some((target) => target.usable && onDuty(target) && !tried.has(target.key)) ? onDuty : servesAlone;
    },
  };
}

/** Whether an engine is for one side of pairs, or may be told to be. */
function hasDuty(engine: EngineRecord): boolean {
  return engine.role !== "both" ? engine.kvTransfer !== undefined : (protocolOf(engine)?.pairsBoth ?? false);
}
