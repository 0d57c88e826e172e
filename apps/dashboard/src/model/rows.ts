import type { EngineFacts, Links, Overview, QueueCounts, RouterStatus } from "./overview.ts";

/** One target as the table of engines shows it. */
export type EngineRow = ReturnType<typeof engineRows>[number];

/**
 * Rows of a router's overview, in its order; ranks of an engine are rows of their own.
 *
 * @param live overviews of all routers that are followed: requests may wait at one of them only
 */
export function engineRows({ engines, load }: Pick<Overview, "engines" | "load">, live: readonly Overview[] = []) {
  const loads = new Map(load.map((one) => [one.target, one]));
  const rows = engines.flatMap((engine) =>
    engine.targets.map(({ target: key, held, slower, placed, owner, quality, isAsleep, ...signals }) => {
      const { own = 0, others = 0, pendingPrefillTokens = 0 } = loads.get(key) ?? {};
      const health = healthOf(engine, isAsleep);
      // What was cached on an engine that is down cannot be used, and may be lost.
      const facts = isAbsent(health) ? 0 : held + slower;
      const predicted = isAbsent(health) ? 0 : placed;
      return {
        ...{ key, engine: engine.id, models: engine.models, role: engine.role, ...health, sinceMs: engine.sinceMs },
        /** Requests of all routers. */
        inFlight: own + others,
        pendingPrefillTokens,
        /** What the engine itself tells. */
        ...signals,
        blocks: facts > 0 ? facts : predicted,
        source: sourceOf(facts, predicted),
        /** The router that reads its events, and how good its feed is. */
        ...{ owner, quality },
        /** Where it is, and milliseconds of a round trip to it. */
        ...{ region: engine.region, networkMs: engine.networkMs },
        ...{ ttftMs: engine.ttftMs, tpotMs: engine.tpotMs, ...waitOf(engine, live) },
      };
    }),
  );
  const all = rows.reduce((sum, { blocks }) => sum + blocks, 0);
  /** `share` is of all known blocks, from 0 to 1. */
  return rows.map((row) => ({ ...row, share: all > 0 ? row.blocks / all : 0 }));
}

/** What any router waits for, or finds slow. */
function waitOf(engine: EngineFacts, live: readonly Overview[]) {
  const seen = [engine, ...live.flatMap(({ engines }) => engines.filter(({ id }) => id === engine.id))];
  const earliest = (times: readonly (number | null)[]): number | null => {
    const known = times.filter((time) => time !== null);
    return known.length === 0 ? null : Math.min(...known);
  };
  return {
    oldestSinceMs: earliest(seen.map(({ oldestSinceMs }) => oldestSinceMs)),
    unresponsiveSinceMs: earliest(seen.map(({ unresponsiveSinceMs }) => unresponsiveSinceMs)),
    slow: seen.find(({ slow }) => slow !== null)?.slow ?? null,
  };
}

/** `facts`: reported by the engine; `placements`: predicted from routed requests. */
function sourceOf(facts: number, placed: number): "facts" | "placements" | "nothing" {
  if (facts > 0) return "facts";
  return placed > 0 ? "placements" : "nothing";
}

/** Of an engine that was just added. */
export const notProbed = "not probed yet";

type Health = "up" | "asleep" | "draining" | "paused" | "open" | "starting" | "unreachable" | "down";

function healthOf(
  { state, reason, draining, paused, breaker, breakerReason }: EngineFacts,
  isAsleep: boolean,
): {
  readonly health: Health;
  /** Why; empty for one that is up. */
  readonly note: string;
} {
  if (state === "starting") return { health: "starting", note: reason && reason !== "new" ? reason : notProbed };
  if (state === "unreachable") return { health: "unreachable", note: reason || "no answer" };
  if (state !== "up") return { health: "down", note: reason || state };
  if (paused) return { health: "paused", note: "by an RL framework" };
  if (breaker !== "closed") return { health: "open", note: breakerReason || `circuit breaker ${breaker}` };
  if (isAsleep) return { health: "asleep", note: "reported by its metrics" };
  return draining ? { health: "draining", note: "by an operator" } : { health: "up", note: "" };
}

/** Whether it cannot be reached. Figures of such an engine are of before. */
export const isAbsent = ({ health }: { readonly health: Health }): boolean =>
  health === "down" || health === "unreachable";

/** Whether it accepts requests and has neither any nor a cache: it is new, or was not used for long. */
export const isIdle = ({ health, inFlight, running, source }: EngineRow): boolean =>
  health === "up" && inFlight === 0 && (running ?? 0) === 0 && source === "nothing";

/** Whether it takes requests and answers none. Its circuit opens soon after. */
export const isUnresponsive = ({ health, unresponsiveSinceMs }: EngineRow): boolean =>
  (health === "up" || health === "open") && unresponsiveSinceMs !== null;

/** The columns by which engines are sorted. */
export type EngineOrder = "name" | "state" | "load" | "memory" | "blocks" | "share";

export interface EngineView {
  readonly by: EngineOrder;
  readonly isDescending: boolean;
  /** Words that a row has to have: parts of its name, its models, its state, its region or the router that reads its events. */
  readonly query: string;
}

/** What needs somebody first. */
const healthOrder: readonly Health[] = [
  "down",
  "unreachable",
  "open",
  "starting",
  "draining",
  "paused",
  "asleep",
  "up",
];

const figureOf: Readonly<Record<Exclude<EngineOrder, "name">, (row: EngineRow) => number>> = {
  state: ({ health }) => -healthOrder.indexOf(health),
  load: ({ inFlight, waiting }) => inFlight + (waiting ?? 0),
  memory: ({ kvUse }) => kvUse ?? -1,
  blocks: ({ blocks }) => blocks,
  share: ({ share }) => share,
};

/** The rows that are looked for, sorted. */
export function viewedEngines(
  rows: readonly EngineRow[],
  { by, isDescending, query }: EngineView,
): readonly EngineRow[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    const { key, models, role, health, note, owner, region } = row;
    const text = [key, ...models, role, healthText[health], note, owner ?? "", region ?? ""].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const sign = isDescending ? -1 : 1;
  return found.sort((one, other) => {
    if (by === "name") return sign * inOrder(one.key, other.key);
    return sign * (figureOf[by](one) - figureOf[by](other)) || inOrder(one.key, other.key);
  });
}

export const healthText: Readonly<Record<Health, string>> = {
  up: "up",
  asleep: "asleep",
  draining: "draining",
  paused: "paused",
  open: "circuit open",
  starting: "starting",
  unreachable: "unreachable",
  down: "down",
};

/** Engines that take requests, and how many there are. */
export function countHealthy(rows: readonly EngineRow[]): { readonly healthy: number; readonly all: number } {
  return { healthy: rows.filter(({ health }) => health === "up").length, all: rows.length };
}

/** A router that the page follows itself. */
export interface FollowedRouter {
  readonly router: string;
  readonly origin: string;
  readonly isLive: boolean;
  /** Whether it has ever answered. */
  readonly hasBeenLive: boolean;
  /** Null where it is not known. */
  readonly requestsPerS: number | null;
  readonly inFlight: number;
  readonly status: RouterStatus | undefined;
  readonly killCommand: string | null;
}

/** One router as the list shows it. */
export type RouterRow = ReturnType<typeof routerRows>[number];

/**
 * All routers: the source, those that it is linked with, and those that the page followed before.
 *
 * @param links of the source, the last known ones where no router answers; undefined before the first
 * @param source the router that is read now; undefined when none answers, and then its links no longer count
 */
export function routerRows(links: Links | undefined, followed: readonly FollowedRouter[], source: string | undefined) {
  const byName = new Map(followed.map((one) => [one.router, one]));
  const linkOf = new Map(links?.links.map((link) => [link.router, link]));
  const lostOf = new Map(links?.lost.map((lost) => [lost.router, lost]));
  const own = links?.router ? [links.router] : [];
  const names = new Set([...byName.keys(), ...linkOf.keys(), ...lostOf.keys(), ...own]);
  return [...names].sort(inOrder).map((router, at) => {
    const own = byName.get(router);
    const link = linkOf.get(router);
    const isLive = own?.isLive === true;
    const release = link ?? (router === links?.router ? links : undefined);
    return {
      router,
      /** By which sessions name it. */
      number: at + 1,
      state: source === undefined && !isLive ? stateWithoutSource(own) : stateOf(own, link),
      /** Why it is not ready; empty where it is, and where that is not known. */
      reasons: isLive && own.status?.ready === false ? own.status.reasons : [],
      /** Whether the page reads what it shows of the fleet from this one. */
      isSource: router === source,
      /** Lag of its updates at the source; null for the source itself, and where it is unknown. */
      lagMs: link?.lagMs ?? null,
      roundTripMs: link?.roundTripMs ?? null,
      requestsPerS: isLive ? own.requestsPerS : null,
      inFlight: isLive ? own.inFlight : null,
      /** Where its own dashboard is. */
      origin: own?.origin ?? link?.admin ?? null,
      killCommand: isLive ? own.killCommand : null,
      /** Whether any router answers at all. */
      hasOthers: source !== undefined,
      /** Since when it is lost, and where it was last; null for one that is there. */
      lost: isLive ? null : (lostOf.get(router) ?? null),
      version: release?.version || null,
      settings: release?.settings || null,
      /** See `Links`. */
      differs: link?.differs ?? [],
    };
  });
}

/** Whether neither the page nor the source hears of it. */
export const isGone = ({ state }: RouterRow): boolean => state === "gone" || state === "silent";

export const countAlive = (rows: readonly RouterRow[]): number =>
  rows.filter(({ state }) => state !== "gone" && state !== "silent" && state !== "connecting").length;

type RouterState = "live" | "linked" | "draining" | "connecting" | "silent" | "gone";

function stateWithoutSource(own: FollowedRouter | undefined): RouterState {
  if (own) return own.hasBeenLive ? "gone" : "connecting";
  return "silent";
}

function stateOf(own: FollowedRouter | undefined, link: Links["links"][number] | undefined): RouterState {
  if (own?.isLive && own.status?.draining) return "draining";
  if (link?.isDraining && link.state === "alive") return "draining";
  if (own?.isLive) return "live";
  if (!link || link.state === "down" || link.state === "left") return "gone";
  return link.state === "alive" && link.isLinked ? "linked" : "silent";
}

/** router-2 before router-10. */
function inOrder(one: string, other: string): number {
  return one.localeCompare(other, "en", { numeric: true });
}

/** One class, over all routers that are followed. */
export type QueueRow = ReturnType<typeof queueRows>[number];

/** The queues of the routers that are followed, one entry each; null where a router has sent none. */
export type RouterQueues = readonly (readonly QueueCounts[] | null)[];

/** One line on the queues. Admission counts as off only where a router says so. */
export function queuesNote(routers: RouterQueues): string {
  if (routers.every((queues) => queues === null)) return "";
  const rows = queueRows(routers);
  if (rows.length === 0) return "admission is off";
  const queued = rows.reduce((sum, row) => sum + row.queued, 0);
  return queued === 0 ? "queue empty" : `${queued} queued`;
}

/** Classes in the order in which routers name them. */
export function queueRows(routers: RouterQueues) {
  const sums = new Map<string, { queued: number; shed: number; waited: number; waitedMs: number }>();
  for (const { name, queued, shed, waited, waitedMs } of routers.flatMap((queues) => queues ?? [])) {
    const sum = sums.get(name) ?? { queued: 0, shed: 0, waited: 0, waitedMs: 0 };
    sum.queued += queued;
    sum.shed += shed;
    sum.waited += waited;
    sum.waitedMs += waitedMs;
    sums.set(name, sum);
  }
  return [...sums].map(([name, { queued, shed, waited, waitedMs }]) => ({
    ...{ name, queued, shed },
    /** Mean of those that had to wait; null when none had to. */
    waitMs: waited > 0 ? waitedMs / waited : null,
  }));
}
