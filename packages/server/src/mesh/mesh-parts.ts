import {
  type Clock,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  type Startable,
  startTogether,
  type TargetIndex,
} from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";
import type { PrefixIndex } from "@espalier/prefix-index";
import { createTargetSlots, type Member, type Replica, type SharedLoad, type TargetSlots } from "@espalier/replication";
import { createSharedTier, createTargetIndices, maxKnownTargets, type SharedTier } from "@espalier/routing";
import type { Fleet, FleetSharing } from "@espalier/workers";
import type { PrefixSharing } from "../prefix/prefix-parts.ts";
import { createBackend, type MeshBackend, type MeshSecrets } from "./create-backend.ts";
import { describeMesh, type MeshDescription } from "./describe-mesh.ts";
import { routerIdOf } from "./router-identity.ts";
import { createSeedSources } from "./seed-sources.ts";

export interface MeshPartsOptions {
  readonly config: Pick<CompiledConfig, "mesh" | "discovery" | "prefix" | "kvEvents">;
  readonly index: PrefixIndex;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** Everything that has to do with other routers. */
export interface MeshParts extends Startable {
  readonly replica: Replica;
  readonly slots: TargetSlots;
  readonly load: SharedLoad;
  /** See `SharedTier`. */
  isOwn(target: TargetIndex): boolean;
  /** For the fleet. */
  readonly fleetSharing: FleetSharing;
  /** For what is known of prefixes. */
  readonly prefixSharing: PrefixSharing;
  /** Where other routers reach this one; null where they do not. */
  readonly address: string | null;
  /** What it waits for before it should be used. */
  readonly waitingFor: readonly string[];
  /** What waits to be sent to other routers, in bytes. */
  readonly bufferedBytes: number;
  /** Ties what operators said elsewhere to this router's fleet. */
  attachFleet(fleet: Fleet, forgetPlacements: (slot: number) => void): void;
  /** What other routers must know from here on. */
  setSecrets(mesh: MeshSecrets): void;
  /** See `MeshBackend`. */
  readonly setTls: MeshBackend["setTls"];
  /** Takes no new work from here on, so others take over its feeds. */
  setDraining(): void;
  /** The other routers. */
  members(): readonly { readonly router: string; readonly state: Member["state"] }[];
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
  const { replica, backend, ownership, host, publisher } = tier;
  const describe = (): MeshDescription =>
    describeMesh({ config, replica, backend, ownership, readTargets: host.targets() });
  const isDirect = config.mesh.events === "direct" || config.kvEvents.mode === "off";
  return {
    ...startTogether([...(sources ? [sources] : []), tier]),
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
      tier.onNewLife(forgetPlacements);
    },
    setSecrets: (mesh) => made?.setSecrets?.(mesh),
    get setTls() {
      return made?.setTls;
    },
    setDraining: () => tier.setDraining(),
    members: () => backend.members().map(({ origin: { router }, state }) => ({ router, state })),
    describe,
  };
}

/** @param isDirect whether each router reads the events itself */
function prefixSharing({ replica, placements, host, standingOf }: SharedTier, isDirect: boolean): PrefixSharing {
  return {
    placements,
    host: isDirect ? undefined : host,
    standingOf: (target) => (isDirect ? undefined : standingOf(target)),
    // What somebody reads is kept: it may come back, or be gone here first. The tier forgets it when nobody does any more.
    forget: ({ key }) => {
      if (replica.claimsOf(key).length === 0) replica.forgetTarget(key);
    },
  };
}

/** Engines that an operator drains at one router are drained at all. */
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
