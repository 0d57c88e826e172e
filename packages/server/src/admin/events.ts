import type { Cancel, Clock, Scheduler } from "@espalier/core";
import { closed, type Described, Type } from "@espalier/core/schema";
import { type EngineRecord, type Fleet, isEngineAsleep } from "@espalier/engines";
import type { ReloadOutcome } from "../lifecycle/reloader.ts";
import type { LostRouter } from "../mesh/fleet-watch.ts";
import type { MeshParts } from "../mesh/mesh-parts.ts";

const kinds = [
  "engine_up",
  "engine_down",
  "engine_unreachable",
  "engine_removed",
  "engine_draining",
  "engine_undrained",
  "engine_restarted",
  "engine_asleep",
  "engine_awake",
  "engine_paused",
  "engine_resumed",
  "circuit_open",
  "circuit_closed",
  "feed_taken_over",
  "router_started",
  "router_joined",
  "router_restarted",
  "router_draining",
  "router_left",
  "router_lost",
  "reloaded",
  "reload_failed",
] as const;

type EventKind = (typeof kinds)[number];

export const fleetEvent = closed({
  atMs: Type.Number({ description: "Milliseconds since the Unix epoch, on the router's clock." }),
  kind: Type.Enum(kinds),
  subject: Type.String({ description: "Engine or router concerned." }),
  detail: Type.String({ description: "Reason or change; may be empty." }),
});

type FleetEvent = Described<typeof fleetEvent>;

/** What happened to engines and routers, as one router saw it. */
export interface EventLog {
  /** @param afterMs only events that were noted later, on the router's wall clock; the oldest first */
  since(afterMs: number): readonly FleetEvent[];
  stop(): void;
}

export interface EventLogOptions {
  /** This router. */
  readonly router: string;
  readonly fleet: Pick<Fleet, "engines" | "onChange">;
  readonly members: MeshParts["members"];
  /** Routers that failed. */
  readonly lost: () => readonly Pick<LostRouter, "router" | "sinceMs">[];
  /** The router that reads a target's KV events; undefined for none. */
  readonly ownerOf: (target: string) => string | undefined;
  readonly lastReload: () => ReloadOutcome | undefined;
  readonly isDraining: () => boolean;
  /** How long events are kept. */
  readonly keptMs: number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** Most events that are kept. */
export const maxEvents = 512;
/** Characters of an event's detail; the rest is cut. */
const maxDetailLength = 160;
const lookEveryMs = 1_000;
/** What a router finds when it starts is no event: engines that are up, and routers. */
const settlingMs = 10_000;

/** Engines report changes themselves; routers, feeds, reloads and the drain are compared with the second before. */
export function createEventLog(options: EventLogOptions): EventLog {
  const { router, fleet, keptMs, clock, scheduler } = options;
  /** With the time at which they were noted, which may be later than when they happened. */
  const noted: { readonly event: FleetEvent; readonly notedMs: number }[] = [];
  let lost: ReadonlyMap<string, number> = new Map();
  let members: ReadonlyMap<string, ReturnType<MeshParts["members"]>[number]> = new Map();
  let owners: ReadonlyMap<string, string> = new Map();
  let reload = options.lastReload();
  let isDraining = false;
  const settledMs = clock.nowMs() + settlingMs;

  const note = (kind: EventKind, subject: string, detail = "", atMs = clock.wallMs()): void => {
    const event = { atMs, kind, subject, detail: detail.slice(0, maxDetailLength) };
    noted.push({ event, notedMs: clock.wallMs() });
    if (noted.length > maxEvents) noted.shift();
  };
  /** Notes an event unless the latest one of this pair says the same; `isNews`: without one, too. */
  const turn = (kind: EventKind, opposite: EventKind, subject: string, isNews: boolean, detail = ""): void => {
    const last = noted.findLast(({ event }) => event.subject === subject && [kind, opposite].includes(event.kind));
    if (last ? last.event.kind !== kind : isNews) note(kind, subject, detail);
  };
  const arrive = (kind: "engine_up" | "router_joined", subject: string): void => {
    if (clock.nowMs() >= settledMs || noted.some(({ event }) => event.subject === subject)) note(kind, subject);
  };
  const cancelFleet = fleet.onChange((change, engine) => {
    const { id, state, stateReason, draining, breaker } = engine;
    if (change === "state" && state === "up") arrive("engine_up", id);
    else if (change === "state" && state !== "starting") note(`engine_${state}`, id, stateReason);
    if (change === "restarted") note("engine_restarted", id);
    if (change === "draining") note(draining ? "engine_draining" : "engine_undrained", id);
    if (change === "asleep") noteSleep(engine);
    if (change === "paused") note(engine.isPaused ? "engine_paused" : "engine_resumed", id);
    if (change !== "breaker") return;
    if (breaker.state === "open") turn("circuit_open", "circuit_closed", id, true, breaker.reason);
    if (breaker.state === "closed") turn("circuit_closed", "circuit_open", id, false);
  });
  const noteSleep = (engine: EngineRecord): void => {
    if (isEngineAsleep(engine)) turn("engine_asleep", "engine_awake", engine.id, true);
    else turn("engine_awake", "engine_asleep", engine.id, false);
  };

  const lookAtRouters = (): void => {
    const now = new Map(options.members().map((member) => [member.router, member]));
    for (const [name, { epoch, state, isDraining: drains }] of now) {
      const before = members.get(name);
      const wasThere = isThere(before);
      if (state === "alive" && before && before.epoch !== epoch) note("router_restarted", name);
      else if (state === "alive" && !wasThere) arrive("router_joined", name);
      else if (wasThere && state === "left") note("router_left", name);
      if (isThere(now.get(name)) && drains && before?.isDraining !== true) note("router_draining", name);
    }
    members = now;
  };
  /** At the time that the list of lost routers has, whenever this is noted: one event has one time. */
  const lookAtLost = (): void => {
    const now = new Map(options.lost().map(({ router: name, sinceMs }) => [name, sinceMs]));
    for (const [name, sinceMs] of now) if (lost.get(name) !== sinceMs) note("router_lost", name, "", sinceMs);
    lost = now;
  };
  const lookAtFeeds = (): void => {
    const now = new Map<string, string>();
    for (const { key } of fleet.engines.flatMap(({ targets }) => targets)) {
      const before = owners.get(key);
      // Between two readers there is none for a while.
      const owner = options.ownerOf(key) ?? before;
      if (owner !== undefined) now.set(key, owner);
      if (before !== undefined && owner !== before) note("feed_taken_over", key, `${before} → ${owner}`);
    }
    owners = now;
  };
  const lookAtRouter = (): void => {
    const last = options.lastReload();
    if (last && last !== reload) note(last.error ? "reload_failed" : "reloaded", router, outcomeOf(last));
    reload = last;
    if (options.isDraining() && !isDraining) note("router_draining", router);
    isDraining = options.isDraining();
  };
  const cancel: Cancel = scheduler.every(lookEveryMs, () => {
    lookAtRouters();
    lookAtLost();
    lookAtFeeds();
    lookAtRouter();
  });
  note("router_started", router);
  return {
    since(afterMs) {
      const oldestMs = Math.max(afterMs, clock.wallMs() - keptMs);
      return noted.filter(({ notedMs }) => notedMs > oldestMs).map(({ event }) => event);
    },
    stop() {
      cancel();
      cancelFleet();
    },
  };
}

const isThere = (member: { readonly state: string } | undefined): boolean =>
  member?.state === "alive" || member?.state === "suspect";

function outcomeOf({ applied, needsRestart, error }: ReloadOutcome): string {
  if (error) return error.message;
  const waiting = needsRestart.length > 0 ? [`needs a restart: ${needsRestart.join(", ")}`] : [];
  return [...(applied.length > 0 ? [applied.join(", ")] : []), ...waiting].join("; ");
}
