import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { eventsOf, feedsOf } from "./cache-rig.ts";
import type { Served } from "./cached-turns.ts";
import type { Json } from "./client.ts";
import type { Rig, RouterOptions, RunningRouter, Sim } from "./rig.ts";

/** Routers of a mesh whose policy looks at caches. */
export interface MeshOptions extends RouterOptions {
  /** Whether prompts become tokens, so that they can be compared with what engines tell. */
  readonly tokenizes?: boolean;
  /** Put over the section `mesh` of each router. */
  readonly mesh?: Json;
}

/** An engine, of whatever kind. */
export interface EngineLike {
  readonly url: string;
  readonly "kv-pull"?: Json;
  readonly region?: string;
}

/** The part of `GET /admin/mesh` that tests read. */
export interface MeshView {
  readonly router: string;
  readonly epoch: number;
  readonly address: string;
  readonly waitingFor: readonly string[];
  readonly members: readonly {
    readonly router: string;
    readonly state: string;
    readonly isLinked: boolean;
    readonly differs: readonly string[];
  }[];
  readonly lost: readonly { readonly router: string; readonly address: string; readonly sinceMs: number }[];
  readonly refused: readonly { readonly by: string; readonly reason: string }[];
  readonly feeds: { readonly owned: number; readonly backup: number; readonly unowned: number };
  readonly facts: { readonly blocks: number; readonly digest: string; readonly settled: number };
  readonly load: readonly { readonly router: string; readonly inFlight: number }[];
  readonly targets: readonly TargetView[];
}

export interface TargetView {
  readonly target: string;
  readonly owner: string | null;
  readonly quality: string;
  readonly epoch: string | null;
  readonly sequence: number | null;
  readonly blocks: number | null;
  readonly digest: string | null;
}

const clusterSecret = "a secret that only the routers of these tests know";

/** Starts routers one after the other, each of which is led to the first, and waits until all see each other. */
export async function meshRouters(
  rig: Rig,
  count: number,
  engines: readonly EngineLike[],
  options: MeshOptions = {},
): Promise<readonly RunningRouter[]> {
  const routers: RunningRouter[] = [];
  for (let at = 0; at < count; at++) {
    const mesh = { "router-id": `router-${at}`, ...options.mesh };
    routers.push(await joinRouter(rig, routers[0], engines, { ...options, mesh }));
  }
  await untilLinked(routers);
  return routers;
}

/** Starts one router. @param seed which it is led to */
export function joinRouter(
  rig: Rig,
  seed: RunningRouter | undefined,
  engines: readonly EngineLike[],
  { tokenizes = true, mesh = {}, config = {}, ...more }: MeshOptions = {},
): Promise<RunningRouter> {
  return rig.router({
    ...more,
    engines: engines.map(({ url, "kv-pull": pull, region }) => ({
      url,
      ...(pull && { "kv-pull": pull }),
      ...(region && { region }),
    })),
    config: {
      policy: "cache_aware",
      ...(tokenizes ? { tokenizers: [{ path: shippedModelFolder() }], tokenize: { budget: "10s" } } : {}),
      scrape: { interval: "100ms" },
      ...config,
      mesh: { port: 0, seeds: seed ? [addressOf(seed)] : [], secret: clusterSecret, ...mesh },
    },
  });
}

/** Where a router is reached by the others. */
export function addressOf({ router }: RunningRouter): string {
  return (router.meshAddress ?? "").replace(/^\w+:\/\//, "");
}

export async function meshOf(router: RunningRouter): Promise<MeshView> {
  return (await router.admin("GET", "/admin/mesh")).json as unknown as MeshView;
}

export async function untilLinked(routers: readonly RunningRouter[]): Promise<void> {
  const isLinked = async (router: RunningRouter): Promise<boolean> => {
    const { members, waitingFor } = await meshOf(router);
    const linked = members.filter((member) => member.state === "alive" && member.isLinked);
    return waitingFor.length === 0 && linked.length === routers.length - 1;
  };
  await waitFor(async () => (await Promise.all(routers.map(isLinked))).every(Boolean), {
    what: "routers that are linked",
    deadlineMs: 10_000,
  });
}

/** Waits until every target is read by one router, and every router knows which, and that it reads. */
export async function untilRead(routers: readonly RunningRouter[], targets: number): Promise<void> {
  const isRead = async (router: RunningRouter): Promise<boolean> => {
    const feeds = await feedsOf(router);
    return feeds.filter(({ state, owner }) => owner !== null && state === "live").length === targets;
  };
  await waitFor(async () => (await Promise.all(routers.map(isRead))).every(Boolean), {
    what: `${targets} targets that are read`,
    deadlineMs: 10_000,
  });
}

/** Waits until every router has folded everything that the engines have published, and knows that it is all. */
export async function untilFolded(routers: readonly RunningRouter[], sims: readonly Sim[]): Promise<void> {
  const isFolded = async (): Promise<boolean> => {
    const events = await Promise.all(
      sims.map(async (sim) => ({ sim, next: Number((await eventsOf(sim)).nextSequence) })),
    );
    const views = await Promise.all(routers.map(meshOf));
    return events.every(({ sim, next }) =>
      views.every(({ targets }) => {
        const target = targets.find((one) => one.target.startsWith(sim.id));
        return next === 0 || (target?.sequence === next - 1 && target.quality === "complete");
      }),
    );
  };
  await waitFor(isFolded, { what: "facts at every router", deadlineMs: 10_000 });
}

/** What a router knows of an engine's first target. */
export async function targetOf(router: RunningRouter, sim: Sim): Promise<TargetView | undefined> {
  return (await meshOf(router)).targets.find(({ target }) => target.startsWith(sim.id));
}

/** Waits until a router has nothing in flight and knows of nothing that others have. */
export async function untilQuiet(router: RunningRouter): Promise<void> {
  await router.untilIdle();
  const isQuiet = async (): Promise<boolean> => (await meshOf(router)).load.every(({ inFlight }) => inFlight === 0);
  await waitFor(isQuiet, { what: "no requests of other routers" });
}

/** Waits until every router has read what the others have guessed, this many placements at least in all. */
export async function untilSpread(routers: readonly RunningRouter[], atLeast: number): Promise<void> {
  const isSpread = async (): Promise<boolean> => {
    const pages = await Promise.all(routers.map((router) => router.metrics()));
    const written = pages.map((page) => page.sum("espalier_placements_written_total"));
    const all = written.reduce((sum, one) => sum + one, 0);
    const isRead = pages.every((page, at) => page.sum("espalier_placements_received_total") >= all - written[at]!);
    return all >= atLeast && isRead;
  };
  await waitFor(isSpread, { what: `${atLeast} placements at every router` });
}

/** Asks the routers in turn. */
export function inTurn(routers: readonly RunningRouter[]): Served {
  let asked = 0;
  return {
    get url() {
      return routers[asked++ % routers.length]?.url ?? "";
    },
  };
}
