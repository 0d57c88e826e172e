import type { HttpClient, Meter } from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";
import {
  createDecodePolicy,
  createPrefillPolicy,
  createRoleBalance,
  createTransferCost,
  type ProbedPolicy,
  probePolicy,
  type RoleBalance,
  type TransferCost,
} from "@espalier/disaggregation";
import type { Policy } from "@espalier/policies";
import type { Fleet } from "@espalier/workers";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { PoolSettings } from "../routing/pools.ts";
import { createPeerIds, type PeerIds } from "./peer-ids.ts";
import { createSplitMetrics, type SplitMetrics } from "./split-metrics.ts";

/** What requests that two engines serve share. */
export interface SplitParts {
  readonly options: CompiledConfig["disaggregation"];
  readonly cost: TransferCost;
  readonly peers: PeerIds;
  readonly metrics: SplitMetrics;
  /** Chooses who prefills for another engine, watched at its choices. */
  readonly prefillProbe: ProbedPolicy;
  /** Chooses who decodes. */
  readonly decodePolicy: Policy;
  /** A pool's own policy, watched at its choices. */
  probeOf(pool: PoolSettings): ProbedPolicy;
  balanceOf(pool: PoolSettings): RoleBalance;
}

export interface SplitPartsOptions {
  readonly config: Pick<CompiledConfig, "disaggregation">;
  readonly clock: RouterContext["clock"];
  readonly http: HttpClient;
  readonly fleet: Fleet;
  readonly meter: Meter;
}

export function createSplitParts({ config, clock, http, fleet, meter }: SplitPartsOptions): SplitParts {
  const cost = createTransferCost();
  const probes = new WeakMap<Policy, ProbedPolicy>();
  const balances = new WeakMap<PoolSettings, RoleBalance>();
  return {
    options: config.disaggregation,
    cost,
    peers: createPeerIds({ http, fleet }),
    metrics: createSplitMetrics(meter),
    prefillProbe: probePolicy(createPrefillPolicy()),
    decodePolicy: createDecodePolicy(cost),
    probeOf({ policy }) {
      const known = probes.get(policy) ?? probePolicy(policy);
      probes.set(policy, known);
      return known;
    },
    balanceOf(pool) {
      const known = balances.get(pool) ?? createRoleBalance({ clock });
      balances.set(pool, known);
      return known;
    },
  };
}
