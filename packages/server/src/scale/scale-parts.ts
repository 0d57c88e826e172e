import { EspalierError, type Meter, type Startable, startTogether } from "@espalier/core";
import { closed, type Described, Type } from "@espalier/core/schema";
import type { WaitingWork } from "@espalier/routing";
import { type DemandedRole, engineRoles, FleetDemand, modelDemand, type PoolWork } from "@espalier/routing";
import type { ScaleConfig } from "../config/index.ts";
import { createScalerServer, type ScalerServer } from "../grpc/index.ts";
import { readTls } from "../lifecycle/certificates.ts";
import type { RouterContext } from "../router-context.ts";

export const scaleReport = closed({ utilization: Type.Number(), models: Type.Array(modelDemand) });

/** How many engines the load needs, and the listener at which KEDA asks. */
export interface ScaleParts extends Startable {
  /** For `GET /admin/scale`. */
  describe(): Described<typeof scaleReport>;
  /** Undefined without a port. */
  readonly scaler: ScalerServer | undefined;
}

type ScaleContext = Pick<RouterContext, "admission" | "clock" | "fleet" | "learning" | "mesh" | "pools" | "scheduler">;

export function createScaleParts(config: ScaleConfig, context: ScaleContext, meter: Meter): ScaleParts {
  const demand = createDemand(config, context, meter);
  const { host, port, tls } = config;
  const scaler =
    port === undefined
      ? undefined
      : createScalerServer({
          ...{ host, port, tls: tls && readTls(tls), scheduler: context.scheduler },
          desired: (metadata) => desiredBy(demand, metadata),
        });
  return {
    ...startTogether([demand, ...(scaler ? [scaler] : [])]),
    describe: () => ({ utilization: config.utilization, models: demand.demands }),
    scaler,
  };
}

/** The demand of all models, from what the parts of the router measure. */
function createDemand(
  { utilization, catchUpMs, idleMs }: ScaleConfig,
  { admission, clock, fleet, learning, mesh, pools, scheduler }: ScaleContext,
  meter: Meter,
): FleetDemand {
  return new FleetDemand({
    ...{ channel: mesh?.replica.notes, clock, scheduler, meter, utilization, catchUpMs, idleMs },
    pools() {
      // Adapters wait in queues of their own for the engines of their base model.
      const waiting = new Map<PoolWork, WaitingWork[]>();
      for (const pool of pools.all()) {
        const { work } = pool;
        waiting.set(work, [...(waiting.get(work) ?? []), ...(admission.of(pool)?.backlog() ?? [])]);
      }
      return [...learning.used()].map(([model, work]) => ({ model, work, waiting: waiting.get(work) ?? [] }));
    },
    enginesOf(model) {
      const targets = fleet.pool(model);
      return {
        targets,
        ranks: Math.max(1, ...targets.map(({ engine }) => engine.targets.length)),
        inFlight: targets.reduce((sum, { index, load }) => sum + load.inFlight + (mesh?.load.inFlight[index] ?? 0), 0),
      };
    },
  });
}

/** @throws EspalierError `invalid_value` for metadata that name no model, or a role that engines have not */
function desiredBy(demand: FleetDemand, { model, role = "both" }: Readonly<Record<string, string>>): number {
  if (!model) throw new EspalierError("invalid_value", "Missing `model` in the trigger's metadata.");
  if (!isRole(role))
    throw new EspalierError("invalid_value", `The trigger's role must be one of ${engineRoles.join(", ")}.`);
  return demand.of(model)?.desired[role] ?? 0;
}

function isRole(text: string): text is DemandedRole {
  return engineRoles.some((role) => role === text);
}
