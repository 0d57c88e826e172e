import { formatAge, formatTime } from "./format.ts";
import type { EngineFacts, Links, LostLink, Overview, QueueCounts } from "./overview.ts";

/** One target as the table of engines shows it. */
export interface EngineRow {
  readonly key: string;
  readonly models: string;
  readonly role: string;
  readonly health: "up" | "draining" | "open" | "starting" | "down";
  readonly note: string;
  /** Requests of all routers. */
  readonly inFlight: number;
  /** By the engine itself. */
  readonly running: number | null;
  readonly waiting: number | null;
  readonly pendingPrefillTokens: number;
  readonly kvUse: number | null;
  readonly blocks: number;
  readonly capacity: number | null;
  /** Share of all known blocks, from 0 to 1. */
  readonly share: number;
  /** `facts`: reported by the engine; `placements`: estimated from requests sent there. */
  readonly source: "facts" | "placements" | "nothing";
  /** The router that reads its events, and how good its feed is. */
  readonly owner: string | null;
  readonly quality: string | null;
  /** Where it is, and milliseconds of a round trip to it. */
  readonly region: string | null;
  readonly networkMs: number | null;
}

/** Rows of a router's overview, in its order; ranks of an engine are rows of their own. */
export function engineRows({ engines, load }: Pick<Overview, "engines" | "load">): readonly EngineRow[] {
  const loads = new Map(load.map((one) => [one.target, one]));
  const rows = engines.flatMap((engine) =>
    engine.targets.map((target) => {
      const sent = loads.get(target.target);
      const facts = target.held + target.slower;
      const blocks = facts > 0 ? facts : target.placed;
      return {
        ...{ key: target.target, models: engine.models.join(", "), role: engine.role, ...healthOf(engine) },
        ...{ running: target.running, quality: target.worth, region: engine.region, networkMs: engine.networkMs },
        inFlight: (sent?.own ?? 0) + (sent?.others ?? 0),
        waiting: target.waiting,
        pendingPrefillTokens: sent?.pendingPrefillTokens ?? 0,
        ...{ kvUse: target.kvUse, blocks, capacity: target.capacity, owner: target.owner },
        source: sourceOf(facts, target.placed),
      };
    }),
  );
  const all = rows.reduce((sum, { blocks }) => sum + blocks, 0);
  return rows.map((row) => ({ ...row, share: all > 0 ? row.blocks / all : 0 }));
}

function sourceOf(facts: number, placed: number): EngineRow["source"] {
  if (facts > 0) return "facts";
  return placed > 0 ? "placements" : "nothing";
}

function healthOf({ state, reason, draining, breaker }: EngineFacts): Pick<EngineRow, "health" | "note"> {
  if (state === "starting") return { health: "starting", note: reason || "not probed yet" };
  if (state !== "up") return { health: "down", note: reason || state };
  if (breaker !== "closed") return { health: "open", note: `circuit breaker ${breaker}` };
  return draining ? { health: "draining", note: "drained by an operator" } : { health: "up", note: "" };
}

/** The columns by which engines are sorted. */
export const engineOrders = ["name", "load", "memory", "blocks", "share"] as const;

export type EngineOrder = (typeof engineOrders)[number];

export interface EngineView {
  readonly by: EngineOrder;
  readonly isDescending: boolean;
  /** Words that a row has to have: parts of its name, its models, its state, its region or the router that reads its events. */
  readonly query: string;
}

const figureOf: Readonly<Record<Exclude<EngineOrder, "name">, (row: EngineRow) => number>> = {
  load: ({ inFlight, waiting }) => inFlight + (waiting ?? 0),
  memory: ({ kvUse }) => kvUse ?? -1,
  blocks: ({ blocks }) => blocks,
  share: ({ share }) => share,
};

/** The rows that are looked for, sorted. By name, engines that take no requests come first. */
export function viewedEngines(
  rows: readonly EngineRow[],
  { by, isDescending, query }: EngineView,
): readonly EngineRow[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    const text =
      `${row.key} ${row.models} ${row.role} ${healthText[row.health]} ${row.owner ?? ""} ${row.region ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const sign = isDescending ? -1 : 1;
  const isUp = ({ health }: EngineRow): number => (health === "up" ? 1 : 0);
  return found.sort((one, other) => {
    const order = by === "name" ? isUp(one) - isUp(other) : sign * (figureOf[by](one) - figureOf[by](other));
    return order || (by === "name" ? sign : 1) * inOrder(one.key, other.key);
  });
}

export const healthText: Readonly<Record<EngineRow["health"], string>> = {
  up: "up",
  draining: "draining",
  open: "circuit open",
  starting: "starting",
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
  readonly requestsPerS: number;
  readonly inFlight: number;
  readonly killCommand: string | null;
}

/** One router as the list shows it. */
export interface RouterRow {
  readonly router: string;
  readonly state: "live" | "linked" | "draining" | "silent" | "gone";
  /** Whether the page reads what it shows of the fleet from this one. */
  readonly isSource: boolean;
  /** Lag of its updates at the source; null for the source itself, and where it is unknown. */
  readonly lagMs: number | null;
  readonly roundTripMs: number | null;
  readonly requestsPerS: number | null;
  readonly inFlight: number | null;
  /** Where its own dashboard is. */
  readonly origin: string | null;
  readonly killCommand: string | null;
  /** Whether any router answers at all. */
  readonly hasOthers: boolean;
  /** Since when it is lost, and where it was last; null for one that is there. */
  readonly lost: LostLink | null;
  readonly version: string | null;
  readonly settings: string | null;
  /** See `RouterLink`. */
  readonly differs: readonly string[];
}

/**
 * All routers: the source, those that it is linked with, and those that the page followed before.
 *
 * @param links of the source, the last known ones where no router answers; undefined before the first
 * @param source the router that is read now; undefined when none answers, and then its links no longer count
 */
export function routerRows(
  links: Links | undefined,
  followed: readonly FollowedRouter[],
  source: string | undefined,
): readonly RouterRow[] {
  const byName = new Map(followed.map((one) => [one.router, one]));
  const linkOf = new Map(links?.links.map((link) => [link.router, link]));
  const lostOf = new Map(links?.lost.map((lost) => [lost.router, lost]));
  const own = links?.router ? [links.router] : [];
  const names = new Set([...byName.keys(), ...linkOf.keys(), ...lostOf.keys(), ...own]);
  return [...names].sort(inOrder).map((router) => {
    const own = byName.get(router);
    const link = linkOf.get(router);
    const isLive = own?.isLive === true;
    const release = link ?? (router === links?.router ? links : undefined);
    return {
      router,
      state: source === undefined && !isLive ? stateWithoutSource(own) : stateOf(isLive, link),
      isSource: router === source,
      lagMs: link?.lagMs ?? null,
      roundTripMs: link?.roundTripMs ?? null,
      requestsPerS: isLive ? own.requestsPerS : null,
      inFlight: isLive ? own.inFlight : null,
      origin: own?.origin ?? link?.admin ?? null,
      killCommand: isLive ? own.killCommand : null,
      hasOthers: source !== undefined,
      lost: isLive ? null : (lostOf.get(router) ?? null),
      version: release?.version || null,
      settings: release?.settings || null,
      differs: link?.differs ?? [],
    };
  });
}

export const countAlive = (rows: readonly RouterRow[]): number =>
  rows.filter(({ state }) => state !== "gone" && state !== "silent").length;

const stateWithoutSource = (own: FollowedRouter | undefined): RouterRow["state"] => (own ? "gone" : "silent");

function stateOf(isLive: boolean, link: Links["links"][number] | undefined): RouterRow["state"] {
  if (link?.isDraining && link.state === "alive") return "draining";
  if (isLive) return "live";
  if (!link || link.state === "down" || link.state === "left") return "gone";
  return link.state === "alive" && link.isLinked ? "linked" : "silent";
}

/** router-2 before router-10. */
function inOrder(one: string, other: string): number {
  return one.localeCompare(other, "en", { numeric: true });
}

/** One class, over all routers that are followed. */
export interface QueueRow {
  readonly name: string;
  readonly queued: number;
  readonly shed: number;
  /** Mean of those that had to wait; null when none had to. */
  readonly waitMs: number | null;
}

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
export function queueRows(routers: RouterQueues): readonly QueueRow[] {
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
    waitMs: waited > 0 ? waitedMs / waited : null,
  }));
}

/** What operators should look at, each in a few words; empty when all is well. */
export function concernsOf(
  routers: readonly RouterRow[],
  engines: readonly EngineRow[],
  refused: number,
): readonly string[] {
  const gone = routers.filter(({ state }) => state === "gone" || state === "silent").map(({ router }) => router);
  const differing = routers.filter(({ differs, lost }) => differs.length > 0 && !lost).map(({ router }) => router);
  const down = engines.filter(({ health }) => health === "down" || health === "open").length;
  return [
    ...(gone.length > 0 ? [`${few(gone)} gone`] : []),
    ...(differing.length > 0 ? [`${few(differing)} with another version or other settings`] : []),
    ...(refused > 0 ? [`${refused} ${refused === 1 ? "router" : "routers"} refused`] : []),
    ...(down > 0 ? [`${down} of ${engines.length} engines down`] : []),
  ];
}

/** At most two names. */
function few(names: readonly string[]): string {
  return names.length > 2 ? `${names.length} routers` : names.join(" and ");
}

interface NoticeState {
  readonly moved: { readonly from: string; readonly to: string; readonly atMs: number } | undefined;
  readonly isLive: boolean;
  readonly hasBeenLive: boolean;
  readonly nowMs: number;
  readonly concerns: readonly string[];
}

/** How long a change of the source is shown. */
const noticedMs = 60_000;

/** One line on a source that was lost, or else on what operators should look at. */
export function noticeText({ moved, isLive, hasBeenLive, nowMs, concerns }: NoticeState): string {
  if (!isLive && hasBeenLive) return "No router answers. This is the last known state; the page keeps trying.";
  if (!moved || nowMs - moved.atMs > noticedMs) return isLive ? concerns.join(" · ") : "";
  const age = formatAge(nowMs - moved.atMs);
  return `${moved.from} is gone: reading from ${moved.to} since ${formatTime(moved.atMs)} (${age}).`;
}
