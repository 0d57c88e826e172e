import { originKey } from "@espalier/mesh";
import { epochId } from "@espalier/shared-tree";
import { journalContent } from "./journal-content.ts";
import type { ModelEngine } from "./model-engine.ts";
import type { ModelRouter } from "./model-router.ts";

export interface Expected {
  readonly engines: readonly ModelEngine[];
  /** Keys that were bound anywhere. */
  readonly bound: ReadonlySet<string>;
  /** Whether somebody has read everything, so that all must know what engines hold. */
  readonly isTruthKnown: boolean;
}

/** What routers that should be equal do not agree on, or do not know, in words. */
export function differencesAmong(routers: readonly ModelRouter[], expected: Expected): string[] {
  const { engines, bound, isTruthKnown } = expected;
  return [
    ...engines.flatMap((engine) => factDifferences(routers, engine, isTruthKnown)),
    ...engines.flatMap((engine) => loadDifferences(routers, engine)),
    ...journalDifferences(routers),
    ...routers.flatMap(unreported),
    ...routers.flatMap(unreadPlacements),
    ...[...bound].flatMap((key) =>
      unequal(routers, `binding ${key}`, ({ replica }) => replica.bindings.get(key) ?? "none"),
    ),
    ...unequal(routers, "engines of the registry", ({ replica }) => JSON.stringify(replica.registry.engines())),
    ...engines.flatMap(({ key }) =>
      unequal(routers, `draining ${key}`, ({ replica }) => String(replica.registry.drainingOf(key))),
    ),
  ];
}

function unequal(
  routers: readonly ModelRouter[],
  what: string,
  textOf: (router: ModelRouter) => string | undefined,
): string[] {
  const values = routers.map((router) => [router.name, textOf(router)] as const);
  const known = values.filter(([, value]) => value !== undefined);
  if (new Set(known.map(([, value]) => value)).size <= 1) return [];
  return [`${what} differs: ${known.map(([name, value]) => `${name} ${value?.slice(0, 160)}`).join(" | ")}`];
}

function factDifferences(routers: readonly ModelRouter[], engine: ModelEngine, isTruthKnown: boolean): string[] {
  const { key } = engine;
  const found = unequal(routers, `facts of ${key}`, ({ replica, index, slots }) => {
    const state = replica.fold.state(key);
    const digest = index.digest(slots.find(key)).join(".");
    const stands = `${state?.last?.sequence}${state?.isComplete ? "" : " partial"} ${state?.progress}`;
    return `${state?.epoch ? epochId(state.epoch) : "no epoch"} ${stands} ${digest}`;
  });
  const last = engine.messages.length - 1;
  const truth = [...engine.held].sort((one, other) => one - other).join();
  for (const router of routers) {
    const state = router.replica.fold.state(key);
    const isUpToDate = last < 0 || state?.last?.sequence === last;
    if (!isUpToDate) found.push(`${router.name} has ${key} up to ${state?.last?.sequence}, not ${last}`);
    if (!isTruthKnown && !state?.isComplete) continue;
    const held = router.held(engine).join();
    if (last >= 0 && held !== truth) found.push(`${router.name} holds other blocks of ${key} than the engine`);
    if (last >= 0 && router.replica.feeds.qualityOf(key) !== "complete") {
      found.push(`${router.name} takes ${key} for ${router.replica.feeds.qualityOf(key)}`);
    }
  }
  return found;
}

/** What a router believes that others have in flight must be what they have. */
function loadDifferences(routers: readonly ModelRouter[], { key }: ModelEngine): string[] {
  return routers.flatMap((router) => {
    const others = routers.filter((other) => other !== router);
    const actual = others.reduce((sum, { load }) => sum + (load.get(key) ?? 0), 0);
    const believed = router.replica.load.shared.inFlight[router.slots.find(key)] ?? 0;
    return believed === actual ? [] : [`${router.name} sees ${believed} in flight at ${key}, not ${actual}`];
  });
}

/** Journals that all hold must be equal, item by item; those of the living must be held by all. */
function journalDifferences(routers: readonly ModelRouter[]): string[] {
  const found: string[] = [];
  const origins = new Map(
    routers.flatMap(({ replica: { store } }) =>
      [store.own.origin, ...store.origins()].map((origin) => [originKey(origin), origin] as const),
    ),
  );
  const living = new Set(routers.map(({ replica }) => originKey(replica.ports.origin)));
  for (const [key, origin] of origins) {
    const holders = routers.filter(({ replica: { store } }) =>
      [store.own.origin, ...store.origins()].some((held) => originKey(held) === key),
    );
    if (living.has(key) && holders.length < routers.length) found.push(`not all have the journal of ${key}`);
    const name = holders[0]!.replica.store.names().find((one) => one.endsWith(`/${origin.router}/${origin.epoch}`));
    found.push(...unequal(holders, `journal of ${key}`, ({ replica: { store } }) => journalContent(store, name!)));
  }
  return found;
}

/** What a router has written itself is in its journal before long. */
function unreported({ name, replica }: ModelRouter): string[] {
  return replica.store.own.hasPending ? [`${name} has not told what it has written`] : [];
}

/** Placements that came in a journal and that its reader could make nothing of. */
function unreadPlacements({ name, meter }: ModelRouter): string[] {
  const unread = [
    meter.value("espalier_placements_received_total", "unresolved"),
    meter.value("espalier_placements_invalid_items_total"),
  ];
  return unread.some(Boolean)
    ? [`${name} could not read placements: ${unread.map((count) => count ?? 0).join(", ")}`]
    : [];
}
