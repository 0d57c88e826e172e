import { asRouterId, type Cancel, type Clock, type Scheduler, silentMeter } from "@espalier/core";
import type { Origin, PlaneExchange, PlaneOptions } from "@espalier/mesh";
import {
  type BindingStore,
  createLocalBindings,
  createSessionBindings,
  MemoryWatch,
  noFleetUsage,
  type RoutingTarget,
} from "@espalier/routing";
import type { FeedQuality } from "@espalier/shared-tree";
import { type LoadGauge, NotePlane, noSharedLoad, type SharedLoad, UsagePlane } from "@espalier/shared-tree";
import { createKnowledge, type RouterView } from "../fleet/router-view.ts";
import type { SimEngine } from "../fleet/sim-engine.ts";
import type { SimPool } from "../fleet/sim-pool.ts";
import type { Sharing, SimTiming } from "../run.ts";
import { ownersOf, type Placement } from "../topology.ts";
import { type Arrivals, arrivalsOf, dueMs, isPrivate } from "./delivery.ts";
import { createDelayedStore, createPrivateStore, type RouterStore } from "./router-store.ts";
import { SessionTable } from "./session-table.ts";
import { SharedKnowledge } from "./shared-knowledge.ts";
import { createLoadBroadcaster, type LoadBroadcaster, LoadTable, silentBroadcaster } from "./shared-load.ts";

interface DelayedTierOptions {
  readonly sharing: Sharing;
  /** Number of routers. */
  readonly routers: number;
  /** By number; 4,096 at most. */
  readonly engines: readonly SimEngine[];
  /** A pool that all engines use; none when absent. */
  readonly pool?: SimPool | undefined;
  readonly timing: SimTiming;
  /** Regions of the engines and routers; all is equally near when absent. */
  readonly placement?: Placement | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** A router tier whose shared state travels with fixed delays. */
export interface DelayedTier {
  /**
   * The view of one router. A restarted router gets a new view; the earlier one must be stopped before.
   *
   * @param targets of the router, each with the number of its engine as index
   * @throws RangeError when there is no such router, or a target has another index
   */
  viewOf(router: number, targets: readonly RoutingTarget[]): RouterView;
}

/** Runs the same upkeep as the server. */
const upkeepMs = 1_000;

/**
 * Replaces the mesh where running it would take too long. One copy of the index serves all routers of a region. Updates reach the
 * other routers after the delays measured for the mesh. No message is lost, and link faults are not modelled. A router
 * sees its own placements and its own load at once.
 *
 * @throws RangeError when there is no engine or router, or there are too many engines
 */
export function createDelayedTier(options: DelayedTierOptions): DelayedTier {
  const { sharing, routers, engines, pool, clock, timing, placement } = options;
  const sources = pool ? [...engines, pool] : engines;
  if (!Number.isInteger(routers) || routers < 1) throw new RangeError("a tier has at least one router");
  const arrivals = arrivalsOf(sharing, routers, { timing, placement });
  const shared = arrivals.map((arrived, region) =>
    (placement?.routers.includes(region) ?? true)
      ? new SharedKnowledge({ engines: sources, arrivals: arrived, clock })
      : undefined,
  );
  const load = createLoadParts(options, arrivals);
  const bindingsOf = createBindingParts(options, arrivals);
  const usage = createBroadcastLinksFor(options, arrivals, (parts) => new UsagePlane(parts));
  const notes = createBroadcastLinksFor(options, arrivals, (parts) => new NotePlane(parts));
  const ownerOf = (target: number): number => {
    if (!placement) return target % routers;
    const owners = ownersOf(placement, target);
    return owners[target % owners.length]!;
  };
  return {
    viewOf(router, targets) {
      if (!Number.isInteger(router) || router < 0 || router >= routers) {
        throw new RangeError(`unknown router ${router}`);
      }
      for (const { index, key } of targets) {
        if (engines[index]?.key !== key) throw new RangeError(`${key} is not the engine of number ${index}`);
      }
      const broadcaster = load?.broadcasterOf(router, targets) ?? silentBroadcaster;
      const sharedLoad = load?.seenBy(router) ?? noSharedLoad();
      const isOwn = (target: number): boolean => ownerOf(target) === router;
      const sessions = createSessionBindings(bindingsOf(router));
      const usagePlane = usage?.planeOf(router);
      return createView(options, storeOf(options, router, shared), {
        ...{ broadcaster, sharedLoad, sessions, isOwn },
        notePlane: notes?.planeOf(router),
        ...{ usagePlane, usage: usagePlane?.of("simulated") ?? noFleetUsage },
      });
    },
  };
}

function storeOf(
  { sharing, routers, engines, clock, placement }: DelayedTierOptions,
  router: number,
  byRegion: readonly (SharedKnowledge | undefined)[],
): RouterStore {
  const shared = byRegion[placement?.routers[router] ?? 0]!;
  if (sharing === "none" || (routers > 1 && isPrivate(sharing)))
    return createPrivateStore(engines.length, clock, shared);
  const elsewhere = byRegion.filter((one): one is SharedKnowledge => one !== undefined && one !== shared);
  return createDelayedStore(router, shared, clock, elsewhere);
}

/** Where routers share only events, each binds the sessions that it sees. */
function createBindingParts(
  { sharing, clock }: DelayedTierOptions,
  arrivals: readonly Arrivals[],
): (router: number) => BindingStore {
  if (isPrivate(sharing)) return () => createLocalBindings(clock);
  const table = new SessionTable({ clock, arrivals });
  return (router) => table.seenBy(router);
}

/** @returns undefined where routers share only events */
function createBroadcastLinksFor<Plane extends { readonly exchange: PlaneExchange }>(
  { sharing, routers, clock, scheduler }: DelayedTierOptions,
  arrivals: readonly Arrivals[],
  create: (options: PlaneOptions) => Plane,
): BroadcastLinks<Plane> | undefined {
  if (routers === 1 || isPrivate(sharing)) return undefined;
  const createPlane = (self: () => Origin) => create({ self, clock, scheduler, meter: silentMeter });
  return createBroadcastLinks({ createPlane, arrivals, clock, scheduler });
}

interface LoadParts {
  seenBy(router: number): SharedLoad;
  broadcasterOf(router: number, targets: readonly RoutingTarget[]): LoadBroadcaster;
}

/** @returns undefined where routers know only their own load */
function createLoadParts(options: DelayedTierOptions, arrivals: readonly Arrivals[]): LoadParts | undefined {
  const { sharing, routers, engines, clock, scheduler, timing, placement } = options;
  if (routers === 1 || isPrivate(sharing)) return undefined;
  const linkDelayMs = (router: number, region: number): number => {
    if (sharing === "oracle") return 0;
    return placement?.delayMs(placement.routers[router]!, region) ?? timing.linkDelayMs;
  };
  const tables = arrivals.map(
    (_, region) => new LoadTable({ routers, targets: engines.length }, clock, (router) => linkDelayMs(router, region)),
  );
  return {
    seenBy: (router) => tables[placement?.routers[router] ?? 0]!.seenBy(router),
    broadcasterOf(router, targets) {
      const send = (target: number, gauge: LoadGauge): void => {
        const nowMs = clock.nowMs();
        for (const [region, table] of tables.entries()) {
          const waitMs = dueMs(arrivals[region]!, "loadDueMs", router, nowMs) - nowMs;
          if (waitMs > 0) scheduler.after(waitMs, () => table.receive({ router, target, gauge }));
          else table.receive({ router, target, gauge });
        }
      };
      return createLoadBroadcaster(sharing, { targets, send, clock, scheduler });
    },
  };
}

function createView(
  { sharing, clock, scheduler, pool }: DelayedTierOptions,
  store: RouterStore,
  parts: {
    readonly broadcaster: LoadBroadcaster;
    readonly usagePlane: UsagePlane | undefined;
    readonly notePlane: NotePlane | undefined;
  } & Pick<RouterView, "sharedLoad" | "sessions" | "isOwn" | "usage">,
): RouterView {
  const { broadcaster, usagePlane, notePlane, ...seen } = parts;
  const quality: FeedQuality = sharing === "none" ? "none" : "complete";
  const { index, placements } = store;
  const feedQualityOf = (): FeedQuality => quality;
  const read = { clock, index, placements, feedQualityOf, meter: silentMeter };
  const knowledge = createKnowledge({ ...read, ...(pool && { pools: pool.reach }) });
  let cancelUpkeep: Cancel = () => {};
  return {
    ...seen,
    notes: notePlane,
    knowledge,
    watchMemory() {
      const watch = new MemoryWatch({ clock, index: store.facts, feedQualityOf });
      store.onPlaced((target, chain, count, isOwn) => watch.sent(target, chain, count, isOwn));
      return watch;
    },
    isSettled: true,
    waitingFor: [],
    loadChanged: (target) => broadcaster.changed(target),
    setDraining() {},
    async start() {
      cancelUpkeep = scheduler.every(upkeepMs, () => {
        knowledge.renew();
        store.maintain();
      });
      usagePlane?.start();
      notePlane?.start();
      await broadcaster.start();
    },
    async stop() {
      cancelUpkeep();
      usagePlane?.stop();
      notePlane?.stop();
      await broadcaster.stop();
    },
  };
}

interface BroadcastLinksOptions<Plane> {
  /** Creates the plane of a router that is starting. */
  readonly createPlane: (self: () => Origin) => Plane;
  /** By region of the readers. Frames of one router never overtake each other. */
  readonly arrivals: readonly Arrivals[];
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Connects the real broadcast planes of routers over lossless links. */
interface BroadcastLinks<Plane> {
  /** The plane of a router that is starting. An earlier plane of the same router receives nothing more. */
  planeOf(router: number): Plane;
}

export function createBroadcastLinks<Plane extends { readonly exchange: PlaneExchange }>(
  options: BroadcastLinksOptions<Plane>,
): BroadcastLinks<Plane> {
  const { createPlane, arrivals, clock, scheduler } = options;
  const regionOf = (router: number): number => arrivals[0]!.routers[router] ?? 0;
  const planes = new Map<number, Plane>();
  let epochs = 0;
  return {
    planeOf(router) {
      const origin = { router: asRouterId(`router-${router}`), epoch: ++epochs };
      const plane = createPlane(() => origin);
      planes.set(router, plane);
      for (const [other, { exchange }] of planes) {
        if (other !== router) for (const frame of exchange.fullFrames()) plane.exchange.receive(frame);
      }
      plane.exchange.onFrame((frame) => {
        if (planes.get(router) !== plane) return;
        const nowMs = clock.nowMs();
        for (const [region, readers] of arrivals.entries()) {
          scheduler.after(dueMs(readers, "loadDueMs", router, nowMs) - nowMs, () => {
            for (const [other, { exchange }] of planes) {
              if (other !== router && regionOf(other) === region) exchange.receive(frame);
            }
          });
        }
      });
      return plane;
    },
  };
}
