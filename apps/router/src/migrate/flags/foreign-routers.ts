import { type FlagRouter, knownFlags } from "./flag-table.ts";
import { productionStack } from "./production-stack.ts";
import { sglangRouter, smg } from "./sglang.ts";

/** By the name that `migrate --from` takes. */
export const foreignRouters = {
  "sglang-router": sglangRouter,
  smg,
  "vllm-production-stack": productionStack,
} as const satisfies Readonly<Record<string, FlagRouter>>;

/**
 * What to answer to a flag that is none of ours.
 *
 * @returns undefined when it is none of these routers' either
 */
export function adviseOnFlag(flag: string): string | undefined {
  const owners = Object.entries(foreignRouters)
    .filter(([, router]) => knownFlags(router).has(flag))
    .map(([name]) => name);
  const [owner] = owners;
  if (owner === undefined) return undefined;
  return [
    `error: ${flag} is a flag of ${owners.join(" and ")}, and none here. From that command line to a mesh:`,
    `  espalier migrate --from ${owner} -- YOUR FLAGS > espalier.yaml`,
    "  ESPALIER_MESH_SECRET=SECRET espalier serve --config espalier.yaml --mesh-host 0.0.0.0 --mesh-port 7946 --mesh-seed OTHER-ROUTER:7946",
    "",
  ].join("\n");
}
