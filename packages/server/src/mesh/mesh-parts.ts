import type { Server } from "node:http";
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
import { createYWebsocketEndpoint, type ServedDocuments } from "@espalier/mesh";
import type { PrefixIndex } from "@espalier/prefix-index";
import { createTargetSlots, type Replica, type SharedLoad } from "@espalier/replication";
import { createSharedTier, createTargetIndices, maxKnownTargets, type SharedTier } from "@espalier/routing";
import type { Fleet, FleetSharing } from "@espalier/workers";
import type { PrefixSharing } from "../prefix/prefix-parts.ts";
import { createBackend } from "./create-backend.ts";
import { describeMesh, type MeshDescription } from "./describe-mesh.ts";
import { createOverview } from "./overview.ts";
import { routerIdOf } from "./router-identity.ts";

export interface MeshPartsOptions {
  readonly config: Pick<CompiledConfig, "mesh" | "prefix" | "kvEvents">;
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
  /** Ties what operators said elsewhere to this router's fleet. */
  attachFleet(fleet: Fleet, forgetPlacements: (slot: number) => void): void;
  /**
   * Lets stock y-websocket clients follow what is shared, read-only, at `/yjs/` of a listener.
   *
   * @param keySha256 of the key that they must show; undefined lets everybody read
   */
  serveDocuments(server: Server, keySha256: Buffer | undefined): void;
  /** Takes no new work from here on, so others take over its feeds. */
  setDraining(): void;
  describe(): MeshDescription;
}

/** @returns undefined when nothing is shared with other routers */
export function createMeshParts(options: MeshPartsOptions): MeshParts | undefined {
  const { config, index, clock, scheduler, random, logger, meter } = options;
  if (config.mesh.backend === "off") return undefined;
  const slots = createTargetSlots(maxKnownTargets);
  const tier = createSharedTier({
    ...{ index, slots, clock, scheduler, logger, meter },
    router: routerIdOf(config.mesh, random),
    placementTtlMs: config.prefix.placementTtlMs,
    createBackend: (replica) => createBackend({ config, replica, clock, scheduler, random, logger, meter }),
  });
  const { replica, backend, ownership, host, publisher } = tier;
  const describe = (): MeshDescription =>
    describeMesh({ config, replica, backend, ownership, readTargets: host.targets() });
  const ends: (() => void)[] = [];
  const watched: ServedDocuments[] = [replica.store];
  const isDirect = config.mesh.events === "direct" || config.kvEvents.mode === "off";
  return {
    ...startTogether([endedBy(ends), tier]),
    replica,
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
    attachFleet(fleet, forgetPlacements) {
      const overview = createOverview({ replica, fleet, index, slots, describe, clock, scheduler });
      ends.push(() => overview.stop());
      watched.push(overview.document);
      attachDrain(fleet, replica);
      tier.onNewLife(forgetPlacements);
    },
    setDraining: () => tier.setDraining(),
    serveDocuments(server, keySha256) {
      const endpoint = createYWebsocketEndpoint({ documents: watched, keySha256, logger, meter, scheduler });
      ends.push(() => endpoint.stop());
      server.on("upgrade", (request, socket, head) => {
        if (!endpoint.handleUpgrade(request, socket, head)) socket.destroy();
      });
    },
    describe,
  };
}

/** @param isDirect whether each router reads the events itself */
function prefixSharing({ replica, placements, host, standingOf }: SharedTier, isDirect: boolean): PrefixSharing {
  return {
    placements,
    host: isDirect ? undefined : host,
    standingOf: (target) => (isDirect ? undefined : standingOf(target)),
    // What others go on reading of it is kept: it may come back, or be gone here first.
    forget: ({ key }) => {
      if (replica.claimsOf(key).length === 0) replica.forgetTarget(key);
    },
  };
}

/** Runs what is to be undone, at the end. */
function endedBy(ends: readonly (() => void)[]): Startable {
  return {
    async start() {},
    async stop() {
      for (const end of ends) end();
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
