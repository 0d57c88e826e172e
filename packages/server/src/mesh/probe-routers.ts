import { asRouterId, systemClock, systemRandom, systemScheduler } from "@espalier/core";
import { createWsTransport, type ProbeResult, probePeer } from "@espalier/mesh";
import type { CompiledConfig } from "../config/index.ts";
import { readMutualTls } from "../lifecycle/certificates.ts";
import { securityOf } from "./mesh-parts.ts";

export type RouterProbe = ProbeResult & { readonly address: string };

/**
 * Whether the routers at these mesh addresses would link to a router of this configuration: the same cluster, secret,
 * seed and block size. None of them gets a new member.
 *
 * @param addresses `host:port` each
 * @throws EspalierError or Error when certificates of `mesh.tls` cannot be used
 */
export async function probeRouters(
  { mesh, prefix }: Pick<CompiledConfig, "mesh" | "prefix">,
  addresses: readonly string[],
): Promise<readonly RouterProbe[]> {
  const scheduler = systemScheduler;
  const tls = mesh.tls && { tls: readMutualTls(mesh.tls) };
  const transport = createWsTransport({ host: "127.0.0.1", port: 0, scheduler, ...tls });
  transport.onConnection((connection) => {
    connection.terminate();
    return { frame() {}, drained() {}, closed() {} };
  });
  await transport.start();
  try {
    const security = securityOf(mesh);
    const identity = {
      origin: {
        router: asRouterId(`doctor-${systemRandom.integer(2 ** 32).toString(16)}`),
        epoch: systemClock.wallMs(),
      },
      ...{ address: undefined, cluster: mesh.cluster, fleetSeed: prefix.seed, blockSizeTokens: prefix.blockSize },
      capabilities: [],
    };
    const secrets = security.kind === "secret" ? security.secrets : [""];
    return await Promise.all(
      addresses.map(async (address) => ({
        ...(await probePeer({ address, transport, scheduler, identity, secrets })),
        address,
      })),
    );
  } finally {
    await transport.stop();
  }
}
