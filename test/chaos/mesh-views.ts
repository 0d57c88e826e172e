import type { MeshPage, RouterProcess } from "./router-process.ts";

/** What a router makes of another one; undefined when it does not know it. */
export async function stateOf(viewer: RouterProcess, router: string): Promise<string | undefined> {
  return (await viewer.mesh()).members.find((member) => member.router === router)?.state;
}

/** Requests that a router counts as in flight elsewhere, by what another router said. */
export async function loadOf(viewer: RouterProcess, router: string): Promise<number> {
  const reported = (await viewer.mesh()).load.find((origin) => origin.router === router);
  return reported === undefined || reported.leaseRemainingMs === 0 ? 0 : reported.inFlight;
}

/** Whether every feed is live, read by one of these, and all viewers agree on by which. */
export async function areFeedsOwned(viewers: readonly RouterProcess[], feeds: number): Promise<boolean> {
  const ids = viewers.map(({ id }) => id);
  const views = await Promise.all(viewers.map((viewer) => viewer.feeds()));
  return views.every((rows) => {
    const owned = rows.filter(({ owner, state }) => owner !== null && ids.includes(owner) && state === "live");
    return owned.length === feeds && rows.every(({ target, owner }) => owner === ownerIn(views[0] ?? [], target));
  });
}

function ownerIn(rows: readonly { readonly target: string; readonly owner: string | null }[], target: string) {
  return rows.find((row) => row.target === target)?.owner;
}

/** Whether all know the same of what engines hold, and know it well. */
export async function haveEqualFacts(viewers: readonly RouterProcess[]): Promise<boolean> {
  const pages = await Promise.all(viewers.map((viewer) => viewer.mesh()));
  return pages.every((page) => isSettled(page) && page.facts.digest === pages[0]?.facts.digest);
}

function isSettled({ facts, targets }: MeshPage): boolean {
  return facts.settled === facts.targets && targets.every(({ quality }) => quality === "complete");
}

/** The router that reads most feeds, and the others. */
export async function busiestReader(
  routers: readonly RouterProcess[],
): Promise<{ readonly victim: RouterProcess; readonly others: readonly RouterProcess[] }> {
  const counts = await Promise.all(routers.map(async (router) => (await router.mesh()).feeds.owned));
  const victim = routers[counts.indexOf(Math.max(...counts))]!;
  return { victim, others: routers.filter((router) => router !== victim) };
}
