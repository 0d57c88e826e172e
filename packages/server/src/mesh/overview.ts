import type { Cancel, Clock, Scheduler } from "@espalier/core";
import { type EngineRecord, type Fleet, findSlowEngines, type Target } from "@espalier/engines";
import type { Origin } from "@espalier/mesh";
import { type PrefixIndex, tier } from "@espalier/prefix-index";
import type { Replica, TargetSlots } from "@espalier/shared-tree";
import type { Readiness } from "../lifecycle/readiness.ts";
import type { ReloadOutcome } from "../lifecycle/reloader.ts";
import type { RequestTotals } from "../request/request-metrics.ts";
import type { ClassCounts } from "../routing/admission-parts.ts";
import type { MeshDescription } from "./describe-mesh.ts";
import type { OwnRelease } from "./fleet-watch.ts";
import { createOverviewDocument, type OverviewDocument } from "./overview-document.ts";

interface OverviewOptions {
  readonly origin: Origin;
  /** Undefined for a router that shares nothing. */
  readonly shared: OverviewOfShared | undefined;
  readonly fleet: Fleet;
  readonly index: PrefixIndex;
  readonly queues: () => readonly ClassCounts[];
  readonly totals: () => Readonly<RequestTotals>;
  readonly inFlight: () => number;
  /** KV event feeds that are configured or discovered; 0 where events are off. */
  readonly feedCount: () => number;
  /** This router's version, and a digest of its shared settings. */
  readonly release: () => OwnRelease;
  /** Origin of a router's admin listener, including this one's; undefined while unknown. */
  readonly adminOf: (router: string) => string | undefined;
  readonly status: () => OwnStatus;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** How this router is. */
interface OwnStatus extends Readiness {
  readonly draining: boolean;
  /** The last reload that changed something or failed. */
  readonly reload: ReloadOutcome | null;
}

interface OverviewOfShared {
  readonly replica: Replica;
  readonly slots: TargetSlots;
  readonly describe: () => MeshDescription;
}

const refreshMs = 1_000;
/** Engines of a router in the shared overview. */
const listedEngines = 128;
/** Characters of an engine\'s reason in the shared overview; the rest is cut. */
const maxReasonLength = 160;
/** Lag is rounded to this step, so that small changes cause no writes. */
const lagStepMs = 5;

/** A small document with a summary of this router, for browsers that follow it. */
interface Overview {
  /** Who begins to follow it calls `onFollowed`, and what that returns at the end. */
  readonly document: OverviewDocument & { onFollowed(): () => void };
  stop(): void;
}

/**
 * Refreshed when somebody begins to follow it, and once a second as long as somebody does; writes only changes. The summary
 * takes milliseconds of the event loop, which a router without an audience does not spend.
 */
export function createOverview(options: OverviewOptions): Overview {
  const { origin, clock, scheduler } = options;
  const document = createOverviewDocument({ origin, clock, scheduler });
  const refresh = (): void => {
    document.set({
      engines: enginesOf(options),
      load: loadOf(options),
      links: linksOf(options),
      queues: queuesOf(options),
      traffic: trafficOf(options),
      status: options.status(),
    });
  };
  let followers = 0;
  const cancel: Cancel = scheduler.every(refreshMs, () => {
    if (followers > 0) refresh();
  });
  const onFollowed = (): (() => void) => {
    if (++followers === 1) refresh();
    return () => {
      followers--;
    };
  };
  return {
    document: { ...document, onFollowed },
    stop() {
      cancel();
      document.stop();
    },
  };
}

/** The document keeps as many as fit: of an engine with many ranks each has a row. */
function enginesOf(options: OverviewOptions) {
  const { engines } = options.fleet;
  const slow = findSlowEngines(engines);
  return engines.slice(0, listedEngines).map((engine) => ({
    ...describeOne(options, engine),
    ...paceOf(options, engine),
    slow: slow.get(engine.id) ?? null,
  }));
}

function describeOne({ shared, index }: OverviewOptions, engine: EngineRecord) {
  const { id, state, draining, role, targets } = engine;
  const models = (engine.models ?? []).map((model) => model.id).slice(0, 8);
  const read = targets.map((target) => ({
    target: target.key,
    quality: shared?.replica.feeds.qualityOf(target.key) ?? null,
    owner: shared?.replica.feeds.claimOf(target.key)?.origin.router ?? null,
    blocks: shared?.replica.fold.statement(target.key)?.blocks ?? null,
    held: index.factBlockCount(target.index, tier.gpu),
    slower:
      index.factBlockCount(target.index, tier.cpu) +
      index.factBlockCount(target.index, tier.disk) +
      index.factBlockCount(target.index, tier.external),
    placed: index.placements.blockCount(target.index),
    ...signalsOf(target),
  }));
  const reason = state === "up" ? "" : engine.stateReason.slice(0, maxReasonLength);
  const sinceMs = engine.stateSinceWallMs;
  const { breaker } = engine;
  const failing = { breaker: breaker.state, breakerReason: breaker.reason.slice(0, maxReasonLength) };
  const place = { region: engine.region ?? null, networkMs: rounded(engine.networkMs, 1) };
  return { id, state, reason, sinceMs, draining, paused: engine.isPaused, ...failing, role, models, ...place, read };
}

/**
 * Medians of the last minute, and since when the oldest request waits for its first token and nothing has come from an engine
 * that should have answered: in milliseconds since the Unix epoch, to the second, so that they stay the same.
 */
function paceOf({ clock }: OverviewOptions, { pace, wait }: EngineRecord) {
  const since = (ageMs: number): number | null => {
    const seconds = rounded((clock.wallMs() - ageMs) / 1_000, 1);
    return seconds === null ? null : seconds * 1_000;
  };
  return {
    ttftMs: rounded(pace.ttftMs, 1),
    tpotMs: rounded(pace.tpotMs, 10),
    oldestSinceMs: since(wait.oldestMs),
    unresponsiveSinceMs: since(wait.unresponsiveMs),
  };
}

function signalsOf({ signals, exclusion }: Target) {
  return {
    isAsleep: exclusion === "asleep",
    kvUse: rounded(signals.kvUse, 1_000),
    running: rounded(signals.running, 1),
    waiting: rounded(signals.waiting, 1),
    capacity: rounded(signals.blockCount, 1),
  };
}

/** Null where there is no signal. */
function rounded(value: number, parts: number): number | null {
  return Number.isFinite(value) ? Math.round(value * parts) / parts : null;
}

/** A row is shorter than that of its engine, so that every engine that is kept keeps its load. */
function loadOf({ fleet, shared }: OverviewOptions) {
  const others = shared?.replica.load.shared;
  return fleet.engines.slice(0, listedEngines).flatMap(({ targets }) =>
    targets.map(({ key, index, load }) => ({
      target: key,
      own: load.inFlight,
      others: others?.inFlight[index] ?? 0,
      pendingPrefillTokens: Math.round(load.pendingPrefillTokens + (others?.pendingPrefillTokens[index] ?? 0)),
    })),
  );
}

function linksOf({ origin, shared, adminOf, release }: OverviewOptions) {
  const { router, epoch } = shared?.replica.ports.origin ?? origin;
  const own = { router, epoch, admin: adminOf(router) ?? null, ...release() };
  if (!shared) return { ...own, address: null, feeds: null, links: [], lost: [], refused: [] };
  const { address, feeds, members, lost, refused } = shared.describe();
  const links = members.map((member) => ({
    ...{ router: member.router, state: member.state, isLinked: member.isLinked, isDraining: member.isDraining },
    ...{ address: member.address, admin: adminOf(member.router) ?? null },
    ...{ lagMs: inSteps(member.lagMs), roundTripMs: inSteps(member.roundTripMs) },
    ...{ version: member.version, settings: member.settings, differs: member.differs },
  }));
  return { ...own, address, feeds, links, lost, refused };
}

function inSteps(milliseconds: number | null): number | null {
  return milliseconds === null ? null : Math.round(milliseconds / lagStepMs) * lagStepMs;
}

/** Target keys by index, for a router that shares nothing. */
export function keysByIndex({ engines }: Pick<Fleet, "engines">): (index: number) => string | undefined {
  const keys = new Map(engines.flatMap(({ targets }) => targets.map((target) => [target.index as number, target.key])));
  return (index) => keys.get(index);
}

function queuesOf({ queues }: OverviewOptions) {
  return queues().map(({ waitedMs, ...counts }) => ({ ...counts, waitedMs: Math.round(waitedMs) }));
}

function trafficOf({ totals, inFlight, feedCount, index }: OverviewOptions) {
  const { firstByteS, tpotS, ...counts } = totals();
  return {
    ...counts,
    firstByteMs: Math.round(firstByteS * 1_000),
    tpotMs: Math.round(tpotS * 1_000),
    inFlight: inFlight(),
    feeds: feedCount(),
    facts: index.factCount,
    placed: index.placements.placedBlocks,
    indexBytes: index.byteLength,
  };
}
