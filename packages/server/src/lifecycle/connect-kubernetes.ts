import type { Scheduler } from "@espalier/common";
import type { DiscoveryConfig } from "@espalier/config";
import { createKubernetesClient, type KubernetesClient } from "@espalier/discovery";
import { createControlHttp } from "@espalier/proxy";

/** A client of the API server that the configuration names. It connects with its first request. */
export function connectKubernetes(
  { kubernetes: access }: Pick<DiscoveryConfig, "kubernetes">,
  scheduler: Scheduler,
): KubernetesClient {
  return createKubernetesClient({
    access,
    connect: (ca) => createControlHttp({ scheduler, ...(ca === undefined ? {} : { tls: { ca } }) }),
  });
}
