import type { EngineParameters } from "@espalier/engine-model";
import { ownRandom } from "./clients/draws.ts";
import type { SimTiming } from "./run.ts";

/** A place where engines, routers and clients are near to each other. */
interface Region {
  readonly name: string;
  /** Parts of the fleet's engines and routers. A fleet of their sum has exactly so many here. */
  readonly engines: number;
  readonly routers: number;
  /** Overrides for the engines here. */
  readonly parameters?: Partial<EngineParameters>;
}

/** Shares of the sessions that start in each region, in the order of the regions, at one moment. */
interface ClientShares {
  /** Virtual seconds since the start of the run. */
  readonly atS: number;
  /** From 0 up; their sum counts as all sessions. */
  readonly shares: readonly number[];
}

/**
 * Regions of a fleet, and how far they are from each other. Everything that crosses from one to another takes the way
 * between them: requests and answers, KV events, scrapes, and what routers share.
 */
export interface Topology {
  readonly regions: readonly Region[];
  /** One way between two regions, and inside one, in milliseconds: symmetric, in the order of the regions. */
  readonly delaysMs: readonly (readonly number[])[];
  /** One way from a client to a router of its region; `hopDelayMs` when absent. */
  readonly clientDelayMs?: number;
  /**
   * Where sessions start, unless the workload says so itself: shares in order of their time, linear in between, and
   * constant before the first and after the last.
   */
  readonly clients: readonly ClientShares[];
}

/** The most regions of a topology. */
const maxRegions = 64;

/** What is wrong with a topology. */
export interface TopologyProblem {
  /** Path of the field in the topology, such as `regions[0].engines`; empty for the topology itself. */
  readonly field: string;
  readonly problem: string;
}

/** @returns undefined for a possible topology */
export function problemOf({ regions, delaysMs, clientDelayMs, clients }: Topology): TopologyProblem | undefined {
  const count = regions.length;
  if (count < 1 || count > maxRegions) return { field: "regions", problem: `must be 1 to ${maxRegions} regions` };
  const names = new Set<string>();
  for (const [at, { name, engines, routers }] of regions.entries()) {
    const field = `regions[${at}]`;
    if (name === "" || names.has(name)) return { field: `${field}.name`, problem: "must be a name of its own" };
    names.add(name);
    if (!isCount(engines)) return { field: `${field}.engines`, problem: "must be a whole number from 0 up" };
    if (!isCount(routers)) return { field: `${field}.routers`, problem: "must be a whole number from 0 up" };
  }
  for (const kind of ["engines", "routers"] as const) {
    if (regions.every((region) => region[kind] === 0)) return { field: "regions", problem: `must have ${kind}` };
  }
  if (delaysMs.length !== count) return { field: "delaysMs", problem: `must have ${count} rows` };
  for (const [from, row] of delaysMs.entries()) {
    if (row.length !== count) return { field: `delaysMs[${from}]`, problem: `must have ${count} numbers` };
    for (const [to, delayMs] of row.entries()) {
      const field = `delaysMs[${from}][${to}]`;
      if (!isAmount(delayMs)) return { field, problem: "must be a number of milliseconds from 0 up" };
      if (delayMs !== delaysMs[to]?.[from]) return { field, problem: `must be the same as delaysMs[${to}][${from}]` };
    }
  }
  if (clientDelayMs !== undefined && !isAmount(clientDelayMs)) {
    return { field: "clientDelayMs", problem: "must be a number of milliseconds from 0 up" };
  }
  return problemOfClients(clients, count);
}

function problemOfClients(clients: readonly ClientShares[], regions: number): TopologyProblem | undefined {
  if (clients.length === 0) return { field: "clients", problem: "must have shares at one moment or more" };
  let lastS = Number.NEGATIVE_INFINITY;
  for (const [at, { atS, shares }] of clients.entries()) {
    if (!(Number.isFinite(atS) && atS > lastS)) {
      return { field: `clients[${at}].atS`, problem: "must be a number of seconds, later than the one before" };
    }
    lastS = atS;
    if (shares.length !== regions || !shares.every(isAmount) || shares.every((share) => share === 0)) {
      return { field: `clients[${at}].shares`, problem: `must be ${regions} numbers from 0 up, not all 0` };
    }
  }
  return undefined;
}

const isCount = (value: number): boolean => Number.isInteger(value) && value >= 0;
const isAmount = (value: number): boolean => Number.isFinite(value) && value >= 0;

/** The regions of a fleet's engines and routers, and the ways between them. Regions are numbers from 0. */
export interface Placement {
  readonly regions: number;
  /** Region of each engine and each router, by number. */
  readonly engines: readonly number[];
  readonly routers: readonly number[];
  /** One way, in milliseconds. */
  delayMs(from: number, to: number): number;
  /** One way from a client in a region to a router in another or the same one, in milliseconds. */
  clientDelayMs(client: number, router: number): number;
}

/**
 * Deals engines and routers to the regions: in the order of the regions, each as many as it has parts, and again from
 * the first one until all are dealt. So a single router stands in the first region that has routers.
 *
 * @throws RangeError for an impossible topology
 */
export function placeFleet(
  topology: Topology,
  fleet: { readonly engines: number; readonly routers: number },
  { hopDelayMs }: Pick<SimTiming, "hopDelayMs">,
): Placement {
  const problem = problemOf(topology);
  if (problem) throw new RangeError(`the topology's ${problem.field} ${problem.problem}`);
  const { regions, delaysMs, clientDelayMs = hopDelayMs } = topology;
  const deal = (kind: "engines" | "routers"): readonly number[] => {
    const order = regions.flatMap((region, at) => new Array<number>(region[kind]).fill(at));
    return Array.from({ length: fleet[kind] }, (_, number) => order[number % order.length]!);
  };
  const delayMs = (from: number, to: number): number => delaysMs[from]![to]!;
  return {
    regions: regions.length,
    engines: deal("engines"),
    routers: deal("routers"),
    delayMs,
    clientDelayMs: (client, router) => clientDelayMs + (client === router ? 0 : delayMs(client, router)),
  };
}

/** All in one region, with the usual way between any two. */
export function placeTogether(
  fleet: { readonly engines: number; readonly routers: number },
  { hopDelayMs }: Pick<SimTiming, "hopDelayMs">,
): Placement {
  const here = { name: "here", ...fleet };
  return placeFleet({ regions: [here], delaysMs: [[hopDelayMs]], clients: [{ atS: 0, shares: [1] }] }, fleet, {
    hopDelayMs,
  });
}

/** Some of a fleet's engines and routers, by their numbers. */
export function placementOf(
  placement: Placement,
  { engines, routers }: { readonly engines: readonly number[]; readonly routers: readonly number[] },
): Placement {
  return {
    ...placement,
    engines: engines.map((number) => placement.engines[number]!),
    routers: routers.map((number) => placement.routers[number]!),
  };
}

/** The routers that own an engine by turns: those of its region, or all where it has none. */
export function ownersOf({ engines, routers }: Placement, engine: number): readonly number[] {
  const all = routers.map((_, router) => router);
  const near = all.filter((router) => routers[router] === engines[engine]);
  return near.length > 0 ? near : all;
}

/** Delays between two regions, from those between neighbours, which are the usual ones. */
export function timingBetween(timing: SimTiming, delayMs: number): SimTiming {
  const { eventDelayMs, sharedFactsMs, sharedLoadMs, hopDelayMs, linkDelayMs } = timing;
  return {
    ...timing,
    eventDelayMs: eventDelayMs + Math.max(0, delayMs - hopDelayMs),
    linkDelayMs: delayMs,
    sharedFactsMs: sharedFactsMs + Math.max(0, delayMs - linkDelayMs),
    sharedLoadMs: sharedLoadMs + Math.max(0, delayMs - linkDelayMs),
  };
}

/** Keeps the draws of regions apart from those of scripts. */
const regionSeed = 0x7265_6769;

/** The region in which a session starts, from its number and the moment of its first request in virtual milliseconds. */
export type RegionOfSession = (session: number, atMs: number) => number;

/** Draws the same region for a session under every policy, provided it starts at the same moment. */
export function createClientRegions({ clients }: Pick<Topology, "clients">, seed: number): RegionOfSession {
  const regions = new Map<number, number>();
  return (session, atMs) => {
    let region = regions.get(session);
    if (region === undefined) {
      const drawn = ownRandom(seed ^ regionSeed, session).float();
      region = regionAt(sharesAt(clients, atMs / 1_000), drawn);
      regions.set(session, region);
    }
    return region;
  };
}

function sharesAt(clients: readonly ClientShares[], atS: number): readonly number[] {
  const next = clients.findIndex((one) => one.atS > atS);
  if (next < 0) return clients.at(-1)!.shares;
  const later = clients[next]!;
  const earlier = clients[next - 1];
  if (!earlier) return later.shares;
  const part = (atS - earlier.atS) / (later.atS - earlier.atS);
  // Shares of two moments may have different sums.
  const [from, to] = [earlier, later].map(({ shares }) => {
    const sum = shares.reduce((total, share) => total + share, 0);
    return shares.map((share) => share / sum);
  });
  return from!.map((share, at) => share + part * (to![at]! - share));
}

/** @param drawn from 0 up to 1 */
function regionAt(shares: readonly number[], drawn: number): number {
  let left = drawn * shares.reduce((sum, share) => sum + share, 0);
  let last = 0;
  for (const [region, share] of shares.entries()) {
    if (share === 0) continue;
    last = region;
    left -= share;
    if (left < 0) return region;
  }
  return last;
}
