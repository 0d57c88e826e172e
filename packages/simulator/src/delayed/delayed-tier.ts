import { noFleetUsage } from "@espalier/admission";
import { asRouterId, type Cancel, type Clock, type Scheduler, silentMeter } from "@espalier/common";
import { NotePlane, type Origin, type PlaneExchange, type PlaneOptions, UsagePlane } from "@espalier/replication";
import {
  type BindingStore,
  createCacheMeters,
  createLocalBindings,
  createPrefixKnowledge,
  createRecentPrompts,
  createSessionBindings,
  type FeedConfidence,
  type KnowledgeOptions,
  MemoryWatch,
  type RoutingTarget,
} from "@espalier/routing";
import type { RouterView } from "../fleet/router-view.ts";
import type { SimEngine } from "../fleet/sim-engine.ts";
import type { Sharing, SimTiming } from "../run.ts";
import { type DeliveryTimes, deliveryTimes } from "./delivery.ts";
import { createCommonStore, createDelayedStore, createPrivateStore, type RouterStore } from "./router-store.ts";
import { SessionTable } from "./session-table.ts";
import { SharedKnowledge } from "./shared-knowledge.ts";
import {
  createDirectBroadcaster,
  createGossipBroadcaster,
  createMeshBroadcaster,
  createUnsharedLoad,
  type LoadBroadcaster,
  type LoadBroadcasterOptions,
  LoadChannel,
  LoadTable,
  silentBroadcaster,
} from "./shared-load.ts";

interface DelayedTierOptions extends Pick<KnowledgeOptions, "placementTtlMs" | "placementTokens"> {
  readonly sharing: Sharing;
  /** Number of routers. */
  readonly routers: number;
  /** By number; 4,096 at most. */
  readonly engines: readonly SimEngine[];
  readonly timing: SimTiming;
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

/** How often a view reclaims memory. */
const upkeepMs = 1_000;

/**
 * Replaces the mesh where running it would take too long. One copy of the index serves all routers. Updates reach the
 * other routers after the delays measured for the mesh. No message is lost, and link faults are not modelled. A router
 * sees its own placements and its own load at once.
 *
 * @throws RangeError when there is no engine or router, or there are too many engines
 */
export function createDelayedTier(options: DelayedTierOptions): DelayedTier {
  const { sharing, routers, engines, clock } = options;
  if (!Number.isInteger(routers) || routers < 1) throw new RangeError("a tier has at least one router");
  const times = deliveryTimes(sharing, routers, options.timing);
  const shared = times.factsDueMs ? new SharedKnowledge({ engines, times, clock }) : undefined;
  const load = createLoadParts(options, times);
  const bindingsOf = createBindingParts(options, times);
  const usage = createBroadcastLinksFor(options, times, (parts) => new UsagePlane(parts));
  const notes = createBroadcastLinksFor(options, times, (parts) => new NotePlane(parts));
  return {
    viewOf(router, targets) {
      if (!Number.isInteger(router) || router < 0 || router >= routers) {
        throw new RangeError(`there is no router ${router}`);
      }
      for (const { index, key } of targets) {
        if (engines[index]?.key !== key) throw new RangeError(`${key} is not the engine of number ${index}`);
      }
      const broadcaster = load?.broadcasterOf(router, targets) ?? silentBroadcaster;
      const sharedLoad = load?.table.seenBy(router) ?? createUnsharedLoad();
      const isOwn = (target: number): boolean => target % routers === router;
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
  { sharing, routers, engines, clock }: DelayedTierOptions,
  router: number,
  shared: SharedKnowledge | undefined,
): RouterStore {
  if (!shared) return createPrivateStore(engines, clock, undefined);
  if (routers === 1 || sharing === "oracle") return createCommonStore(shared, clock);
  return sharing === "events-only"
    ? createPrivateStore(engines, clock, shared)
    : createDelayedStore(router, shared, clock);
}

/** Where routers share only events, each binds the sessions that it sees. */
function createBindingParts(
  { sharing, clock }: DelayedTierOptions,
  { placementsDueMs }: DeliveryTimes,
): (router: number) => BindingStore {
  if (sharing === "none" || sharing === "events-only") return () => createLocalBindings(clock);
  const table = new SessionTable({ clock, dueMs: placementsDueMs });
  return (router) => table.seenBy(router);
}

/** @returns undefined where routers share only events */
function createBroadcastLinksFor<Plane extends { readonly exchange: PlaneExchange }>(
  { sharing, routers, clock, scheduler }: DelayedTierOptions,
  { loadDueMs }: DeliveryTimes,
  create: (options: PlaneOptions) => Plane,
): BroadcastLinks<Plane> | undefined {
  if (routers === 1 || sharing === "none" || sharing === "events-only") return undefined;
  const createPlane = (self: () => Origin) => create({ self, clock, scheduler, meter: silentMeter });
  return createBroadcastLinks({ createPlane, dueMs: loadDueMs, clock, scheduler });
}

interface LoadParts {
  readonly table: LoadTable;
  broadcasterOf(router: number, targets: readonly RoutingTarget[]): LoadBroadcaster;
}

/** @returns undefined where routers know only their own load */
function createLoadParts(options: DelayedTierOptions, times: DeliveryTimes): LoadParts | undefined {
  const { sharing, routers, engines, clock, scheduler, timing } = options;
  if (routers === 1 || sharing === "none" || sharing === "events-only") return undefined;
  const linkDelayMs = sharing === "oracle" ? 0 : timing.linkDelayMs;
  const table = new LoadTable({ routers, targets: engines.length }, clock, linkDelayMs);
  const channel = new LoadChannel(table, { times, clock, scheduler });
  return {
    table,
    broadcasterOf(router, targets) {
      const parts: LoadBroadcasterOptions = { router, channel, clock, scheduler };
      if (sharing === "mesh") return createMeshBroadcaster(parts, targets);
      return sharing === "oracle" ? createDirectBroadcaster(parts) : createGossipBroadcaster(parts);
    },
  };
}

function createView(
  { sharing, clock, scheduler, placementTtlMs, placementTokens }: DelayedTierOptions,
  store: RouterStore,
  parts: {
    readonly broadcaster: LoadBroadcaster;
    readonly usagePlane: UsagePlane | undefined;
    readonly notePlane: NotePlane | undefined;
  } & Pick<RouterView, "sharedLoad" | "sessions" | "isOwn" | "usage">,
): RouterView {
  const { broadcaster, usagePlane, notePlane, ...seen } = parts;
  const confidence: FeedConfidence = sharing === "none" ? "none" : "complete";
  const knowledge = createPrefixKnowledge({
    clock,
    placementTtlMs,
    placementTokens,
    index: store.index,
    placements: store.placements,
    // Recent prompts matter where events are incomplete.
    recent: createRecentPrompts(),
    meters: createCacheMeters(silentMeter),
    feedConfidenceOf: () => confidence,
    onPlaced: () => {},
  });
  let cancelUpkeep: Cancel = () => {};
  return {
    ...seen,
    notes: notePlane,
    knowledge,
    watchMemory() {
      const watch = new MemoryWatch({ clock, index: store.facts, feedConfidenceOf: () => confidence });
      store.onPlaced((target, chain, count, isOwn) => watch.sent(target, chain, count, isOwn));
      return watch;
    },
    isSettled: true,
    waitingFor: [],
    loadChanged: (target) => broadcaster.changed(target),
    setDraining() {},
    async start() {
      cancelUpkeep = scheduler.every(upkeepMs, () => store.maintain());
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
  /** When a frame sent at a given moment arrives at the other routers. Frames never overtake each other. */
  readonly dueMs: (sentMs: number) => number;
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
  const { createPlane, dueMs, clock, scheduler } = options;
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
        scheduler.after(dueMs(clock.nowMs()) - clock.nowMs(), () => {
          for (const [other, { exchange }] of planes) if (other !== router) exchange.receive(frame);
        });
      });
      return plane;
    },
  };
}
