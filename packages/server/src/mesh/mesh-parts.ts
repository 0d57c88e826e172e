import { hostname, networkInterfaces } from "node:os";
import {
  asRouterId,
  type Clock,
  hostInUrl,
  type Logger,
  type Meter,
  type Random,
  type RouterId,
  type Scheduler,
  type Startable,
  startTogether,
  systemCpuMs,
  type TargetIndex,
} from "@espalier/core";
import type { Fleet, FleetSharing } from "@espalier/engines";
import { createHostLookup } from "@espalier/engines";
import {
  type Backend,
  createMesh,
  createRedisBackend,
  createWsTransport,
  type FoundSeeds,
  type LinkSecurity,
  type Member,
  type MutualTls,
} from "@espalier/mesh";
import type { PrefixIndex } from "@espalier/prefix-index";
import { createLoadPublisher, maxKnownTargets } from "@espalier/routing";
import {
  createSharedTier,
  createTargetIndices,
  createTargetSlots,
  type Replica,
  type SharedLoad,
  type SharedTier,
  type TargetSlots,
} from "@espalier/shared-tree";
import type { CompiledConfig, MeshConfig } from "../config/index.ts";
import { readMutualTls } from "../lifecycle/certificates.ts";
import type { PrefixSharing } from "../prefix/prefix-parts.ts";
import { describeMesh, type MeshDescription } from "./describe-mesh.ts";
import { createFleetWatch, type FleetWatch, type RouterRelease } from "./fleet-watch.ts";
import { createSeedSources } from "./seed-sources.ts";

interface MeshPartsOptions {
  readonly config: Pick<CompiledConfig, "mesh" | "discovery" | "prefix" | "kvEvents">;
  readonly index: PrefixIndex;
  readonly release: RouterRelease;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** Everything shared with other routers. */
export interface MeshParts extends Startable {
  readonly replica: Replica;
  readonly slots: TargetSlots;
  readonly load: SharedLoad;
  /** See `SharedTier`. */
  isOwn(target: TargetIndex): boolean;
  /** For the fleet. */
  readonly fleetSharing: FleetSharing;
  /** For prefix knowledge. */
  readonly prefixSharing: PrefixSharing;
  /** Address at which other routers reach this one; null without one. */
  readonly address: string | null;
  /** What readiness waits for, as sentences. */
  readonly waitingFor: readonly string[];
  /** Bytes that wait to be sent to other routers. */
  readonly bufferedBytes: number;
  /** Applies drains that operators set at other routers to this router's fleet, and vice versa. */
  attachFleet(fleet: Fleet, forgetPlacements: (slot: number) => void): void;
  /** Sets the secrets by which routers authenticate each other from now on, and the settings that others are told of. */
  reconfigure(now: { readonly mesh: MeshSecrets; readonly settings: RouterRelease["settings"] }): void;
  /** See `MeshBackend`. */
  readonly setTls: MeshBackend["setTls"];
  /** Announces that this router drains, so that others take over its feeds. */
  setDraining(): void;
  /** The other routers. */
  members(): readonly {
    readonly router: string;
    readonly epoch: number;
    readonly state: Member["state"];
    readonly isDraining: boolean;
  }[];
  /** Routers that failed, the latest last. */
  lost: FleetWatch["lost"];
  describe(): MeshDescription;
}

/** @returns undefined when nothing is shared with other routers */
export function createMeshParts(options: MeshPartsOptions): MeshParts | undefined {
  const { config, index, clock, scheduler, random, logger, meter } = options;
  if (config.mesh.backend === "off") return undefined;
  const slots = createTargetSlots(maxKnownTargets);
  const sources = config.mesh.backend === "peers" ? createSeedSources(options) : undefined;
  let made: MeshBackend | undefined;
  let attached: Fleet | undefined;
  const tier = createSharedTier({
    ...{ index, slots, clock, scheduler, logger, meter },
    fleetTargets: () => attached?.engines.flatMap(({ targets }) => targets.map(({ key }) => key)),
    router: routerIdOf(config.mesh, random),
    region: config.mesh.region,
    placementTtlMs: config.prefix.placementTtlMs,
    createBackend: (replica) => {
      made = createBackend({
        config,
        replica,
        clock,
        scheduler,
        random,
        logger,
        meter,
        ...(sources && { found: sources.found }),
      });
      return made.backend;
    },
  });
  const { replica, backend } = tier;
  const publisher = createLoadPublisher(replica.load, scheduler);
  const watch = createFleetWatch({
    ...{ notes: replica.notes, release: options.release, clock, scheduler, logger, meter },
    members: () => backend.describe().members,
  });
  const describe = (): MeshDescription => describeMesh({ config, replica, backend, watch });
  const isDirect = config.mesh.events === "direct" || config.kvEvents.mode === "off";
  return {
    ...startTogether([...(sources ? [sources] : []), tier, publisher, watch]),
    replica,
    slots,
    load: tier.load,
    isOwn: (target) => tier.isOwn(target),
    fleetSharing: {
      indexOf: createTargetIndices(slots),
      loadChanged: (target) => publisher.changed(target),
      othersInFlight: (target) => tier.load.inFlight[target] ?? 0,
    },
    prefixSharing: prefixSharing(tier, isDirect),
    get address() {
      return backend.describe().address;
    },
    get waitingFor() {
      return backend.waitingFor;
    },
    get bufferedBytes() {
      return backend.bufferedBytes;
    },
    attachFleet(fleet, forgetPlacements) {
      attached = fleet;
      attachDrain(fleet, replica);
      tier.onNewEpoch(forgetPlacements);
    },
    reconfigure({ mesh, settings }) {
      made?.setSecrets?.(mesh);
      watch.setSettings(settings);
    },
    get setTls() {
      return made?.setTls;
    },
    setDraining: () => tier.setDraining(),
    lost: () => watch.lost(),
    members: () => backend.members().map(({ origin, state, isDraining }) => ({ ...origin, state, isDraining })),
    describe,
  };
}

/** @param isDirect whether each router reads the events itself */
function prefixSharing({ replica, placements, host, feedQualityOf }: SharedTier, isDirect: boolean): PrefixSharing {
  return {
    placements,
    host: isDirect ? undefined : host,
    feedQualityOf: (target) => (isDirect ? undefined : feedQualityOf(target)),
    // Kept while any router reads its feed, since the target may come back. The tier then forgets it.
    forget: ({ key }) => {
      if (replica.feeds.claimsOf(key).length === 0) replica.forgetTarget(key);
    },
  };
}

/** Drains an engine at all routers once it is drained at one. */
function attachDrain(fleet: Fleet, replica: Replica): void {
  const apply = (): void => {
    for (const { id, draining } of fleet.engines) {
      const wanted = replica.registry.drainingOf(id);
      if (wanted !== undefined && wanted !== draining) fleet.setDraining(id, wanted);
    }
  };
  replica.registry.onChange(apply);
  fleet.onChange((change, { id, draining }) => {
    if (change === "added") apply();
    if (change === "draining") replica.registry.setDraining(id, draining);
  });
}

interface BackendOptions {
  readonly config: Pick<CompiledConfig, "mesh" | "prefix">;
  /** Seeds in addition to those of the configuration. */
  readonly found?: FoundSeeds;
  readonly replica: Replica;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** A backend whose credentials can change while it runs. */
interface MeshBackend {
  readonly backend: Backend;
  /** Undefined without a secret. */
  readonly setSecrets: ((mesh: MeshSecrets) => void) | undefined;
  /** Undefined without TLS. Throws for unusable certificates and then keeps the old ones. */
  readonly setTls: ((tls: MutualTls) => void) | undefined;
}

/** The secrets of a configuration. */
type MeshSecrets = Pick<MeshConfig, "secret" | "acceptedSecrets">;

/** @throws EspalierError `config_unreadable` */
export function createBackend({ config, replica, found, ...ports }: BackendOptions): MeshBackend {
  const { mesh, prefix } = config;
  const shared = {
    ...ports,
    replica: replica.ports,
    cluster: mesh.cluster,
    region: mesh.region,
    fleetSeed: prefix.seed,
    blockSizeTokens: prefix.blockSize,
    graceMs: mesh.joinGraceMs,
  };
  if (mesh.backend === "redis") {
    const backend = createRedisBackend({ ...shared, cpuMs: systemCpuMs, url: mesh.redisUrl?.reveal() ?? "" });
    return { backend, setSecrets: undefined, setTls: undefined };
  }
  const { tls, seedServers } = mesh;
  const transport = createWsTransport({
    host: mesh.host,
    port: mesh.port,
    scheduler: ports.scheduler,
    ...(tls && { tls: readMutualTls(tls) }),
  });
  const backend = createMesh({
    ...shared,
    transport,
    cpuMs: systemCpuMs,
    advertise: (listening) =>
      mesh.advertise ?? `${advertisedHost(mesh.host)}${listening.slice(listening.lastIndexOf(":"))}`,
    security: securityOf(mesh),
    seeds: mesh.seeds,
    ...(found && { found }),
    ...(seedServers.length > 0 && { resolve: createHostLookup(seedServers) }),
  });
  return {
    backend,
    setSecrets: mesh.secret && ((changed) => backend.setSecrets(secretsOf(changed))),
    setTls: tls && ((changed) => transport.setTls(changed)),
  };
}

export function securityOf(mesh: MeshConfig): LinkSecurity {
  if (mesh.secret) return { kind: "secret", secrets: secretsOf(mesh) };
  return { kind: mesh.tls ? "mutual-tls" : "insecure" };
}

function secretsOf({ secret, acceptedSecrets }: MeshSecrets): readonly string[] {
  return [...(secret ? [secret] : []), ...acceptedSecrets].map((one) => one.reveal());
}

/**
 * The id of this router: as configured, else the host's name with the mesh port, or with a random suffix when the
 * system chooses the port.
 */
export function routerIdOf({ routerId, port }: Pick<MeshConfig, "routerId" | "port">, random: Random): RouterId {
  if (routerId !== undefined) return asRouterId(routerId);
  const name =
    hostname()
      .replaceAll(/[^A-Za-z0-9._-]/g, "-")
      .slice(0, 96) || "router";
  return asRouterId(`${name}-${port === 0 ? random.integer(2 ** 32).toString(36) : port}`);
}

/**
 * The host that other routers dial: the one listened on or, when listening on all addresses, the first external one.
 */
export function advertisedHost(host: string): string {
  if (host !== "0.0.0.0" && host !== "::") return hostInUrl(host);
  const family = host === "::" ? "IPv6" : "IPv4";
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const outer = addresses.find((address) => !address.internal && address.family === family);
  return hostInUrl(outer?.address ?? (family === "IPv6" ? "::1" : "127.0.0.1"));
}
