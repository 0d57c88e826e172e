import { isIP } from "node:net";
import {
  asRouterId,
  hostInUrl,
  plainHost,
  silentMeter,
  systemClock,
  systemRandom,
  systemScheduler,
} from "@espalier/core";
import { createHostLookup } from "@espalier/engines";
import { createWsTransport, type ProbeResult, probePeer, probeRedis } from "@espalier/mesh";
import type { CompiledConfig } from "../config/index.ts";
import { readMutualTls } from "../lifecycle/certificates.ts";
import { createLogCollector, type LoggedLine } from "../lifecycle/log-collector.ts";
import { securityOf } from "./mesh-parts.ts";
import { createSeedSources } from "./seed-sources.ts";

export type RouterProbe = ProbeResult & { readonly address: string };

/** Other routers, as a router of a configuration finds them. */
export interface FoundRouters {
  /** Host names among the seeds: the addresses of each, or why there are none. */
  readonly names: readonly { readonly name: string; readonly addresses: readonly string[]; readonly error: unknown }[];
  readonly routers: readonly RouterProbe[];
  /** The warnings and errors of sources of seeds. */
  readonly lines: readonly LoggedLine[];
}

/** Addresses that are dialled; further ones are not. */
const maxAddresses = 64;
/** Sources of seeds that do not answer give up sooner. */
const maxSourceMs = 10_000;

/**
 * Finds the routers of the configured seeds, and whether they would link to a router of this configuration: the same
 * cluster, secret, seed and block size. None of them gets a new member.
 *
 * @throws EspalierError or Error when a file of seeds or certificates of `mesh.tls` cannot be used
 */
export async function findRouters(
  config: Pick<CompiledConfig, "mesh" | "prefix" | "discovery">,
): Promise<FoundRouters> {
  const lines: LoggedLine[] = [];
  const seeds = [...new Set([...config.mesh.seeds, ...(await seedsOfSources(config, lines))])];
  const lookUp = createHostLookup(config.mesh.seedServers);
  const found = await Promise.all(
    seeds.map(async (seed) => {
      const at = seed.lastIndexOf(":");
      const [name, port] = [plainHost(seed.slice(0, at)), seed.slice(at + 1)];
      try {
        const addresses = isIP(name) === 0 ? await lookUp(name) : [name];
        return { name, addresses, error: undefined, dialled: addresses.map((host) => `${hostInUrl(host)}:${port}`) };
      } catch (error) {
        return { name, addresses: [], error, dialled: [] };
      }
    }),
  );
  const addresses = [...new Set(found.flatMap(({ dialled }) => dialled))].slice(0, maxAddresses);
  const names = found.filter(({ name }) => isIP(name) === 0);
  return { names, lines, routers: addresses.length === 0 ? [] : await probeRouters(config, addresses) };
}

async function seedsOfSources(
  config: Pick<CompiledConfig, "mesh" | "discovery">,
  lines: LoggedLine[],
): Promise<readonly string[]> {
  const scheduler = systemScheduler;
  const logger = createLogCollector(lines);
  const sources = createSeedSources({ config, scheduler, random: systemRandom, logger, meter: silentMeter });
  try {
    await sources.start();
    await new Promise<void>((resolve) => {
      const look = (): void => {
        if (sources.found.isTried) end();
      };
      const cancels = [sources.found.onChange(look), scheduler.after(maxSourceMs, () => end())];
      const end = (): void => {
        for (const cancel of cancels) cancel();
        resolve();
      };
      look();
    });
    return sources.found.seeds();
  } finally {
    await sources.stop();
  }
}

async function probeRouters(
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

/**
 * Whether the Redis of this configuration takes its routers.
 *
 * @throws EspalierError `redis_unusable`, or Error when it cannot be reached
 */
export function probeMeshRedis({ mesh }: Pick<CompiledConfig, "mesh">): Promise<void> {
  return probeRedis({ url: mesh.redisUrl?.reveal() ?? "", scheduler: systemScheduler });
}
