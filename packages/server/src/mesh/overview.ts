import type { Cancel, Clock, Scheduler } from "@espalier/common";
import type { PrefixIndex } from "@espalier/prefix-index";
import { createOverviewDocument, type OverviewDocument, type Replica, type TargetSlots } from "@espalier/replication";
import { describeEngine, type Fleet } from "@espalier/workers";
import type { MeshDescription } from "./describe-mesh.ts";

export interface OverviewOptions {
  readonly replica: Replica;
  readonly fleet: Fleet;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  readonly describe: () => MeshDescription;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

const refreshMs = 1_000;
const listedEngines = 128;
const listedPrefixes = 32;

/** A small document that sums this router up, for a browser that follows it. */
export interface Overview {
  readonly document: OverviewDocument;
  stop(): void;
}

/** Kept up to date once a second, and only where something changed. */
export function createOverview(options: OverviewOptions): Overview {
  const { replica, clock, scheduler } = options;
  const document = createOverviewDocument({ origin: replica.ports.origin, clock, scheduler });
  const refresh = (): void => {
    document.set("engines", enginesOf(options));
    document.set("load", loadOf(options));
    document.set("links", linksOf(options.describe()));
    document.set("prefixes", prefixesOf(options));
  };
  const cancel: Cancel = scheduler.every(refreshMs, refresh);
  return {
    document,
    stop() {
      cancel();
      document.stop();
    },
  };
}

function enginesOf({ fleet, replica }: OverviewOptions) {
  return fleet.engines.slice(0, listedEngines).map((engine) => {
    const { id, state, draining, targets } = engine;
    const models = (engine.models ?? []).map((model) => model.id).slice(0, 8);
    const read = targets.map(({ key }) => ({
      target: key,
      worth: replica.worthOf(key),
      owner: replica.claimOf(key)?.origin.router ?? null,
      blocks: replica.fold.statement(key)?.blocks ?? null,
    }));
    return { id, state, draining, breaker: describeEngine(engine).breaker, models, read };
  });
}

function loadOf({ fleet, replica }: OverviewOptions) {
  const { shared } = replica.load;
  return fleet.engines.slice(0, listedEngines).flatMap(({ targets }) =>
    targets.map(({ key, index, load }) => ({
      target: key,
      own: load.inFlight,
      others: shared.inFlight[index] ?? 0,
      pendingPrefillTokens: load.pendingPrefillTokens + (shared.pendingPrefillTokens[index] ?? 0),
    })),
  );
}

function linksOf({ router, epoch, address, members, feeds }: MeshDescription) {
  const links = members.map(({ router: other, state, isLinked, isDraining, address: at }) => ({
    router: other,
    state,
    isLinked,
    isDraining,
    address: at,
  }));
  return { router, epoch, address, feeds, links };
}

function prefixesOf({ index, slots, clock }: OverviewOptions) {
  return index.largestSharedPrefixes(listedPrefixes, clock.nowMs()).map(({ hash, blocks, targets, continuations }) => ({
    hash: [...hash].map((word) => word.toString(16).padStart(8, "0")).join(""),
    blocks,
    targets: targets.map((slot) => slots.keyOf(slot) ?? null),
    continuations,
  }));
}
