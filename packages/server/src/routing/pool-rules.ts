import type { CompiledConfig, PoolConfig } from "@espalier/config";
import { createPolicy, policyCatalogue } from "@espalier/policies";
import type { PoolRule } from "./pools.ts";

/**
 * The rules of a configuration, and last the one for every other model. Each policy is made once here, so that a bad
 * option is found at the start and not with the first request.
 *
 * @throws EspalierError `config_invalid`
 */
export function poolRules({ pools, policy }: Pick<CompiledConfig, "pools" | "policy">): readonly PoolRule[] {
  const general: PoolConfig = { models: ["*"], policy, engineApiKey: undefined, forwardAuthorization: false };
  return [...pools, general].map((pool) => {
    const create = () => createPolicy(pool.policy.name, pool.policy.options);
    const { name } = create();
    return {
      models: pool.models,
      policyText: JSON.stringify(pool.policy),
      createPolicy: create,
      metricsEveryMs: policyCatalogue[name].metricsEveryMs,
      upstreamHeaders: pool.engineApiKey ? ["authorization", `Bearer ${pool.engineApiKey.reveal()}`] : [],
      forwardAuthorization: pool.forwardAuthorization,
    };
  });
}
