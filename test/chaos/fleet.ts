import { freePort, waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { publishingSims } from "../integration/cache-rig.ts";
import type { Rig, Sim } from "../integration/rig.ts";
import { createFaultNetwork, type FaultNetwork } from "./fault-network.ts";
import { areFeedsOwned } from "./mesh-views.ts";
import { type RouterProcess, startRouter } from "./router-process.ts";

export interface FleetOptions {
  readonly routers: number;
  readonly engines: number;
  /** Engine seconds per real second; 200 by default. */
  readonly speed?: number;
  /** Flags beside those that every router of a fleet has. */
  readonly flags?: readonly string[];
  /** False where each router reads all events itself. */
  readonly areFeedsShared?: boolean;
  /** Asked at every start of a router: the folder of the release that it runs. This one by default. */
  readonly checkout?: () => string;
  /** Flags that name the engines; their URLs by default. */
  readonly engineFlags?: (sims: readonly Sim[]) => Promise<readonly string[]>;
}

/** Simulated engines with KV events, and routers in a mesh, each a process and behind a wire of its own. */
export interface Fleet {
  readonly sims: readonly Sim[];
  readonly routers: readonly RouterProcess[];
  readonly network: FaultNetwork;
  /** Starts one router more, or one again. */
  start(id: string, ...flags: readonly string[]): Promise<RouterProcess>;
}

/** What every router of a fleet is started with. */
function commonFlags(): readonly string[] {
  return [
    ...["--policy", "cache_aware", "--tokenizer", shippedModelFolder(), "--tokenize-budget", "10s"],
    // A busy machine must not look like a dead engine.
    ...["--health-timeout", "10s", "--log-level", "info"],
  ];
}

/** Starts a fleet, which the rig ends, and waits until every router has a link to every other one and all feeds are read. */
export async function startFleet(rig: Rig, options: FleetOptions): Promise<Fleet> {
  const sims = await publishingSims(rig, options.engines, { speed: options.speed ?? 200 });
  const network = createFaultNetwork();
  rig.own(() => network.close());
  const ids = Array.from({ length: options.routers }, (_, index) => `router-${index + 1}`);
  const ports = new Map<string, number>();
  const addresses = new Map<string, string>();
  for (const id of ids) addresses.set(id, await network.addRouter(id, () => ports.get(id) ?? 0));
  const engineFlags = (await options.engineFlags?.(sims)) ?? sims.flatMap(({ url }) => ["--engine", url]);
  const start: Fleet["start"] = async (id, ...flags) => {
    const port = await freePort();
    ports.set(id, port);
    if (!addresses.has(id)) addresses.set(id, await network.addRouter(id, () => ports.get(id) ?? 0));
    const seeds = [...addresses].flatMap(([other, address]) => (other === id ? [] : ["--mesh-seed", address]));
    const identity = ["--mesh-router-id", id, "--mesh-port", String(port), "--mesh-advertise", addresses.get(id) ?? ""];
    const all = [...engineFlags, ...commonFlags(), ...identity, ...seeds, ...(options.flags ?? []), ...flags];
    return startRouter(rig, id, all, options.checkout?.());
  };
  const routers = await Promise.all(ids.map((id) => start(id)));
  await untilWhole(routers, options.engines, options.areFeedsShared);
  return { sims, routers, network, start };
}

/** Only to end a test that hangs. */
const wholeDeadlineMs = 30_000;

/** Waits until these routers are ready and linked with each other, and agree on who reads which feed. */
export async function untilWhole(
  routers: readonly RouterProcess[],
  feeds: number,
  areFeedsShared = true,
): Promise<void> {
  const readers = areFeedsShared ? routers.map(({ id }) => id) : undefined;
  for (const router of routers) {
    await waitFor(() => isWhole(router, routers, { feeds, readers }), {
      what: `whole mesh as ${router.id} sees it`,
      deadlineMs: wholeDeadlineMs,
    });
  }
  if (!areFeedsShared) return;
  // A router that came last takes feeds over from the others: one after the other hears of that.
  const what = "agreement on who reads which feed";
  await waitFor(() => areFeedsOwned(routers, feeds), { what, deadlineMs: wholeDeadlineMs });
}

interface WantedFeeds {
  readonly feeds: number;
  /** Who may read them for all; undefined where everybody does. */
  readonly readers: readonly string[] | undefined;
}

async function isWhole(
  router: RouterProcess,
  routers: readonly RouterProcess[],
  { feeds, readers }: WantedFeeds,
): Promise<boolean> {
  const { members, waitingFor } = await router.mesh();
  const linked = members.filter(({ state, isLinked }) => state === "alive" && isLinked);
  const isLinked = routers.every(({ id }) => id === router.id || linked.some((member) => member.router === id));
  const rows = await router.feeds();
  const live = rows.filter(({ state, owner }) => state === "live" && (!readers || readers.includes(owner ?? "")));
  const { ready } = await router.ask<{ readonly ready: boolean }>("/admin/status");
  return isLinked && live.length === feeds && waitingFor.length === 0 && ready;
}
