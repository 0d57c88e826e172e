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
  type FeedStanding,
  type KnowledgeOptions,
  MemoryWatch,
  type RoutingTarget,
} from "@espalier/routing";
import type { RouterView } from "../fleet/router-view.ts";
import type { SimEngine } from "../fleet/sim-engine.ts";
import type { Sharing, SimTiming } from "../run.ts";
import { type DeliveryTimes, deliveryTimes } from "./delivery.ts";
import { createCommonStore, createDelayedStore, createPrivateStore, type RouterStore } from "./router-store.ts";
import { SessionBoard } from "./session-board.ts";
import { SharedKnowledge } from "./shared-knowledge.ts";
import {
  createDirectTeller,
  createGossipTeller,
  createMeshTeller,
  createUnsharedLoad,
  LoadBoard,
  LoadChannel,
  type LoadTeller,
  type LoadTellerOptions,
  silentTeller,
} from "./shared-load.ts";

interface DelayedTierOptions extends Pick<KnowledgeOptions, "placementTtlMs" | "placementTokens"> {
  readonly sharing: Sharing;
  /** How many there are. */
  readonly routers: number;
  /** By number; 4,096 at most. */
  readonly engines: readonly SimEngine[];
  readonly timing: SimTiming;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Routers that hear of each other after fixed delays. */
export interface DelayedTier {
  /**
   * What one of them sees. A router that is started again has a new view; the earlier one is to be stopped before.
   *
   * @param targets of the router, each with the number of its engine as index
   * @throws RangeError when there is no such router, or a target has another index
   */
  viewOf(router: number, targets: readonly RoutingTarget[]): RouterView;
}

/** How often a view has memory reclaimed. */
const upkeepMs = 1_000;

/**
 * Stands for the mesh where running it would take too long: one copy of the index serves all routers, and what one says
 * reaches the others after the delays that the mesh was measured with. Nothing is lost on the way, and faults of links are
 * not modelled. A router sees its own guesses and its own load at once.
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
  const usage = createNoteParts(options, times, (parts) => new UsagePlane(parts));
  const notes = createNoteParts(options, times, (parts) => new NotePlane(parts));
  return {
    viewOf(router, targets) {
      if (!Number.isInteger(router) || router < 0 || router >= routers) {
        throw new RangeError(`there is no router ${router}`);
      }
      for (const { index, key } of targets) {
        if (engines[index]?.key !== key) throw new RangeError(`${key} is not the engine of number ${index}`);
      }
      const teller = load?.tellerOf(router, targets) ?? silentTeller;
      const sharedLoad = load?.board.seenBy(router) ?? createUnsharedLoad();
      const isOwn = (target: number): boolean => target % routers === router;
      const sessions = createSessionBindings(bindingsOf(router));
      const told = usage?.planeOf(router);
      return createView(options, storeOf(options, router, shared), {
        ...{ teller, sharedLoad, sessions, isOwn },
        notePlane: notes?.planeOf(router),
        ...{ usagePlane: told, usage: told?.of("simulated") ?? noFleetUsage },
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

/** Where routers tell each other of nothing but events, each binds the sessions that it sees for itself. */
function createBindingParts(
  { sharing, clock }: DelayedTierOptions,
  { placementsDueMs }: DeliveryTimes,
): (router: number) => BindingStore {
  if (sharing === "none" || sharing === "events-only") return () => createLocalBindings(clock);
  const board = new SessionBoard({ clock, dueMs: placementsDueMs });
  return (router) => board.seenBy(router);
}

/** @returns undefined where routers tell each other nothing but events */
function createNoteParts<Plane extends { readonly exchange: PlaneExchange }>(
  { sharing, routers, clock, scheduler }: DelayedTierOptions,
  { loadDueMs }: DeliveryTimes,
  create: (options: PlaneOptions) => Plane,
): NoteLinks<Plane> | undefined {
  if (routers === 1 || sharing === "none" || sharing === "events-only") return undefined;
  const createPlane = (self: () => Origin) => create({ self, clock, scheduler, meter: silentMeter });
  return createNoteLinks({ createPlane, dueMs: loadDueMs, clock, scheduler });
}

interface LoadParts {
  readonly board: LoadBoard;
  tellerOf(router: number, targets: readonly RoutingTarget[]): LoadTeller;
}

/** @returns undefined where routers know of no load but their own */
function createLoadParts(options: DelayedTierOptions, times: DeliveryTimes): LoadParts | undefined {
  const { sharing, routers, engines, clock, scheduler } = options;
  if (routers === 1 || sharing === "none" || sharing === "events-only") return undefined;
  const board = new LoadBoard({ routers, targets: engines.length }, clock);
  const channel = new LoadChannel(board, { times, clock, scheduler });
  return {
    board,
    tellerOf(router, targets) {
      const parts: LoadTellerOptions = { router, channel, clock, scheduler };
      if (sharing === "mesh") return createMeshTeller(parts, targets);
      return sharing === "oracle" ? createDirectTeller(parts) : createGossipTeller(parts);
    },
  };
}

function createView(
  { sharing, clock, scheduler, placementTtlMs, placementTokens }: DelayedTierOptions,
  store: RouterStore,
  parts: {
    readonly teller: LoadTeller;
    readonly usagePlane: UsagePlane | undefined;
    readonly notePlane: NotePlane | undefined;
  } & Pick<RouterView, "sharedLoad" | "sessions" | "isOwn" | "usage">,
): RouterView {
  const { teller, usagePlane, notePlane, ...seen } = parts;
  const standing: FeedStanding = sharing === "none" ? "none" : "complete";
  const knowledge = createPrefixKnowledge({
    clock,
    placementTtlMs,
    placementTokens,
    index: store.index,
    placements: store.placements,
    // What was sent lately matters where events tell less than everything.
    recent: createRecentPrompts(),
    meters: createCacheMeters(silentMeter),
    standingOf: () => standing,
    onPlaced: () => {},
  });
  let cancelUpkeep: Cancel = () => {};
  return {
    ...seen,
    notes: notePlane,
    knowledge,
    watchMemory() {
      const watch = new MemoryWatch({ clock, index: store.facts, standingOf: () => standing });
      store.onPlaced((target, chain, count, isOwn) => watch.sent(target, chain, count, isOwn));
      return watch;
    },
    isSettled: true,
    waitingFor: [],
    loadChanged: (target) => teller.changed(target),
    setDraining() {},
    async start() {
      cancelUpkeep = scheduler.every(upkeepMs, () => store.maintain());
      usagePlane?.start();
      notePlane?.start();
      await teller.start();
    },
    async stop() {
      cancelUpkeep();
      usagePlane?.stop();
      notePlane?.stop();
      await teller.stop();
    },
  };
}

interface NoteLinksOptions<Plane> {
  /** Makes what a router that begins now has to tell others by frames. */
  readonly createPlane: (self: () => Origin) => Plane;
  /** When what is told at a moment is known to the other routers; later moments never arrive earlier. */
  readonly dueMs: (toldMs: number) => number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Routers that tell each other by the code that real routers run, over links that lose nothing. */
interface NoteLinks<Plane> {
  /** Of a router that begins now; its life before, if it had one, hears nothing more. */
  planeOf(router: number): Plane;
}

export function createNoteLinks<Plane extends { readonly exchange: PlaneExchange }>(
  options: NoteLinksOptions<Plane>,
): NoteLinks<Plane> {
  const { createPlane, dueMs, clock, scheduler } = options;
  const planes = new Map<number, Plane>();
  let lives = 0;
  return {
    planeOf(router) {
      const origin = { router: asRouterId(`router-${router}`), epoch: ++lives };
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
