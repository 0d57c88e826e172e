import type { Server } from "node:http";
import {
  type Cancel,
  type Clock,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
  type Startable,
  startTogether,
} from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";
import {
  type Backend,
  createOwnership,
  createYWebsocketEndpoint,
  type Ownership,
  type ServedDocuments,
} from "@espalier/mesh";
import { type PrefixIndex, type Tier, type TierName, tierNames } from "@espalier/prefix-index";
import {
  createReplica,
  createTargetSlots,
  lifeId,
  type Replica,
  type SharedLoad,
  type TargetSlots,
} from "@espalier/replication";
import type { Fleet, FleetSharing } from "@espalier/workers";
import type { FeedHost } from "../prefix/feed-host.ts";
import { maxKnownTargets } from "../prefix/prefix-knowledge.ts";
import type { PrefixSharing } from "../prefix/prefix-parts.ts";
import { createBackend } from "./create-backend.ts";
import { describeMesh, type MeshDescription } from "./describe-mesh.ts";
import { createLoadPublisher } from "./load-publisher.ts";
import { createOverview } from "./overview.ts";
import { createReachWatch } from "./reach-watch.ts";
import { routerIdOf } from "./router-identity.ts";
import { createSharedHost } from "./shared-host.ts";
import { createSharedPlacements } from "./shared-placements.ts";
import { createStandings } from "./standings.ts";
import { createTargetIndices } from "./target-indices.ts";

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
  const router = routerIdOf(config.mesh, random);
  const { placementTtlMs } = config.prefix;
  const replica = createReplica({ router, index, slots, clock, scheduler, logger, meter, placementTtlMs });
  const backend = createBackend({ config, replica, clock, scheduler, random, logger, meter });
  const ownership = createOwnership({
    ...{ clock, scheduler, meter, logger },
    self: () => replica.ports.origin,
    members: () => backend.members(),
    claims: (target) => replica.claimsOf(target),
    onRole: (target, role) => host.setRole(target, role),
  });
  const host = createSharedHost({
    replica,
    ownership: () => ownership,
    reach: createReachWatch(scheduler, (targets) => {
      ownership.setUnreachable(targets);
      backend.setUnreachable(targets);
    }),
    blocksOf: (target) => blocksByTier(index, slots.find(target)),
  });
  const publisher = createLoadPublisher(replica.load, scheduler);
  const describe = (): MeshDescription =>
    describeMesh({ config, replica, backend, ownership, readTargets: host.targets() });
  const ends: (() => void)[] = [];
  const watched: ServedDocuments[] = [replica.store];
  const isDirect = config.mesh.events === "direct" || config.kvEvents.mode === "off";
  return {
    ...startTogether([endedBy(ends), replica, backendWith({ backend, replica, ownership, scheduler }), publisher]),
    replica,
    load: replica.load.shared,
    fleetSharing: {
      indexOf: createTargetIndices(slots),
      loadChanged: (target) => publisher.changed(target),
      othersInFlight: (target) => replica.load.shared.inFlight[target] ?? 0,
    },
    prefixSharing: prefixSharing(replica, slots, isDirect ? undefined : host),
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
      attachLives(replica, (target) => forgetPlacements(slots.find(target)));
    },
    setDraining() {
      ownership.setDraining(true);
      backend.setDraining(true);
    },
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

/** @param host undefined when each router reads the events itself */
function prefixSharing(replica: Replica, slots: TargetSlots, host: FeedHost | undefined): PrefixSharing {
  const standings = createStandings(replica, slots);
  return {
    placements: createSharedPlacements(replica.placements, slots),
    host,
    standingOf: (target) => (host ? standings.of(target) : undefined),
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

interface BackendParts {
  readonly backend: Backend;
  readonly replica: Replica;
  readonly ownership: Ownership;
  readonly scheduler: Scheduler;
}

/** How often a router that joins looks whether it knows all that its peers do. */
const joinCheckMs = 20;

/** The backend, which tells replica and ownership who lives, and says goodbye at the end. */
function backendWith({ backend, replica, ownership, scheduler }: BackendParts): Startable {
  let cancelCheck: Cancel = () => {};
  const changed = (): void => {
    replica.setMembers(backend.members());
    ownership.membersChanged();
  };
  backend.onMembers(changed);
  replica.onClaims((target) => ownership.claimsChanged(target));
  // Whoever decided before it knew the claims of others would claim every feed.
  const startOwnership = (): void => {
    if (backend.waitingFor.length > 0) cancelCheck = scheduler.after(joinCheckMs, startOwnership);
    else ownership.start();
  };
  return {
    async start() {
      await backend.start();
      changed();
      startOwnership();
    },
    async stop() {
      cancelCheck();
      ownership.stop();
      await backend.leave();
      await backend.stop();
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

/** What was guessed of an engine does not hold once it runs anew, whoever noticed. */
function attachLives(replica: Replica, forgetPlacements: (target: string) => void): void {
  const lives = new Map<string, string>();
  replica.fold.onChange((target) => {
    const life = replica.fold.state(target)?.life;
    if (!life) {
      lives.delete(target);
      return;
    }
    const before = lives.get(target);
    const now = lifeId(life);
    lives.set(target, now);
    if (before !== undefined && before !== now) forgetPlacements(target);
  });
}

function blocksByTier(index: PrefixIndex, slot: number): Readonly<Record<TierName, number>> {
  const counts = tierNames.map((name, inTier) => [name, slot < 0 ? 0 : index.factBlockCount(slot, inTier as Tier)]);
  return Object.fromEntries(counts) as Record<TierName, number>;
}
