import { originKey } from "@espalier/mesh";
import { epochId } from "@espalier/shared-tree";
import type { SimFleet } from "@espalier/simulator";
import { journalContent } from "../convergence/journal-content.ts";
import type { EngineTruth } from "./engine-truth.ts";
import { type LiveRouter, liveRouters } from "./live-router.ts";

/** What living routers have not settled among them, in words: who lives, and who reads which feed. */
export function unsettled(fleet: SimFleet): string[] {
  const routers = liveRouters(fleet);
  const found: string[] = [];
  for (const { number, view } of routers) {
    const { backend } = view.tier;
    if (backend.waitingFor.length > 0) found.push(`router ${number} waits for ${backend.waitingFor.join(", ")}`);
    const known = backend.members().filter(({ state }) => state === "alive").length;
    if (known !== routers.length - 1) found.push(`router ${number} knows ${known} others, not ${routers.length - 1}`);
  }
  for (const { key } of fleet.engines) {
    const roles = routers.map(({ view }) => view.tier.ownership.roleOf(key));
    const owners = roles.filter((role) => role === "owner").length;
    const backups = roles.filter((role) => role === "backup").length;
    if (owners !== 1) found.push(`${key} has ${owners} owners`);
    if (backups !== Math.min(1, routers.length - 1)) found.push(`${key} has ${backups} backups`);
  }
  return found;
}

/**
 * What living routers do not agree on, or believe that is not so, in words. To be called when no request is under way.
 */
export function differences(fleet: SimFleet, truth: EngineTruth): string[] {
  const routers = liveRouters(fleet);
  return [
    ...fleet.engines.flatMap((engine) => factDifferences(routers, engine, truth)),
    ...routers.flatMap((router) => phantomLoad(router)),
    ...journalDifferences(routers),
    ...routers.flatMap(unreported),
  ];
}

function unequal(routers: readonly LiveRouter[], what: string, textOf: (router: LiveRouter) => string): string[] {
  const values = routers.map((router) => [router.number, textOf(router)] as const);
  if (new Set(values.map(([, value]) => value)).size <= 1) return [];
  return [`${what} differ: ${values.map(([number, value]) => `${number} ${value.slice(0, 160)}`).join(" | ")}`];
}

function factDifferences(
  routers: readonly LiveRouter[],
  { key, number, messages }: SimFleet["engines"][number],
  truth: EngineTruth,
): string[] {
  const found = unequal(routers, `facts of ${key}`, ({ view }) => {
    const state = view.tier.replica.fold.state(key);
    const stands = `${state?.last?.sequence}${state?.isComplete ? "" : " partial"} ${state?.progress}`;
    const quality = view.tier.replica.feeds.qualityOf(key);
    return `${state?.epoch ? epochId(state.epoch) : "no epoch"} ${stands} ${view.index.digest(number).join(".")} ${quality}`;
  });
  const last = messages.length - 1;
  for (const { number: router, view } of last < 0 ? [] : routers) {
    const state = view.tier.replica.fold.state(key);
    if (state?.last?.sequence !== last) found.push(`${router} has ${key} up to ${state?.last?.sequence}, not ${last}`);
    else if (state.isComplete && view.index.digest(number).join(".") !== truth.digest(number)) {
      found.push(`${router} holds other blocks of ${key} than the engine`);
    }
  }
  return found;
}

/** Nothing is under way, so nobody has anything in flight. */
function phantomLoad({ number, view, ownLoads }: LiveRouter): string[] {
  const { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs } = view.sharedLoad;
  const others = [inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs].map((values) => Math.max(...values));
  const own = ownLoads.map(({ load }) => load.inFlight + load.pendingPrefillTokens + load.decodeTokens);
  const most = Math.max(...others, ...own);
  return most === 0 ? [] : [`${number} has phantom load: others ${others.join(", ")}; own ${own.join(", ")}`];
}

/** What a router has written itself is in its journal before long. */
function unreported({ number, view }: LiveRouter): string[] {
  return view.tier.replica.store.own.hasPending ? [`router ${number} has not told what it has written`] : [];
}

/** Journals that all hold must be equal, item by item; those of the living must be held by all. */
function journalDifferences(routers: readonly LiveRouter[]): string[] {
  const found: string[] = [];
  const stores = routers.map(({ view }) => view.tier.replica.store);
  const origins = new Map(
    stores.flatMap((store) => [store.own.origin, ...store.origins()].map((origin) => [originKey(origin), origin])),
  );
  // A journal in which nothing was written is known to nobody.
  const begun = stores.filter((store) => (store.state(store.own.name)?.clock ?? 0) > 0);
  const living = new Set(begun.map(({ own }) => originKey(own.origin)));
  for (const [key, origin] of origins) {
    const holders = routers.filter(({ view: { tier } }) =>
      [tier.replica.store.own.origin, ...tier.replica.store.origins()].some((held) => originKey(held) === key),
    );
    if (living.has(key) && holders.length < routers.length) found.push(`not all have the journal of ${key}`);
    const name = (router: LiveRouter): string =>
      router.view.tier.replica.store.names().find((one) => one.endsWith(`/${origin.router}/${origin.epoch}`)) ?? "";
    found.push(
      ...unequal(holders, `${living.has(key) ? "" : "dead "}journals of ${key}`, (router) => {
        const { store } = router.view.tier.replica;
        return `up to ${store.state(name(router))?.clock} ${journalContent(store, name(router))}`;
      }),
    );
  }
  return found;
}
