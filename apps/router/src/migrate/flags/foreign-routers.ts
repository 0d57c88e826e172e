import { type FlagRouter, readRouters } from "./flag-router.ts";
import { finishProductionStack } from "./production-stack.ts";
import { finishSglang } from "./sglang.ts";

let read: Readonly<Record<string, FlagRouter>> | undefined;

/** Routers that are configured by flags, by the name that `migrate --from` takes. Their tables are read once. */
export function foreignRouters(): Readonly<Record<string, FlagRouter>> {
  read ??= {
    ...readRouters("sglang", finishSglang),
    ...readRouters("production-stack", finishProductionStack),
  };
  return read;
}

/**
 * What to answer to a flag that is none of ours.
 *
 * @returns undefined when it is none of these routers' either
 */
export function adviseOnFlag(flag: string): string | undefined {
  const owners = Object.entries(foreignRouters())
    .filter(([, { known }]) => known.has(flag))
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
