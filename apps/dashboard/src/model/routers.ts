import type { Links } from "./overview.ts";

/** What the page knows of a router that it follows itself. */
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
  /** How late the source hears of it; null for the source itself, and where that is not known. */
  readonly lagMs: number | null;
  readonly roundTripMs: number | null;
  readonly requestsPerS: number | null;
  readonly inFlight: number | null;
  /** Where its own dashboard is. */
  readonly origin: string | null;
  readonly killCommand: string | null;
  /** Whether any router answers at all. */
  readonly hasOthers: boolean;
}

/**
 * All routers: the source, those that it is linked with, and those that the page knew before.
 *
 * @param links of the source, undefined before it has told; what was told last where none is read any more
 * @param source the router that is read now, undefined when none answers: then nothing that was told of others still counts
 */
export function routerRows(
  links: Links | undefined,
  followed: readonly FollowedRouter[],
  source: string | undefined,
): readonly RouterRow[] {
  const byName = new Map(followed.map((one) => [one.router, one]));
  const linkOf = new Map(links?.links.map((link) => [link.router, link]));
  const names = new Set([...byName.keys(), ...linkOf.keys(), ...(links?.router ? [links.router] : [])]);
  return [...names].sort(inOrder).map((router) => {
    const own = byName.get(router);
    const link = linkOf.get(router);
    const isLive = own?.isLive === true;
    return {
      router,
      state: source === undefined && !isLive ? unheard(own) : stateOf(isLive, link),
      isSource: router === source,
      lagMs: link?.lagMs ?? null,
      roundTripMs: link?.roundTripMs ?? null,
      requestsPerS: isLive ? own.requestsPerS : null,
      inFlight: isLive ? own.inFlight : null,
      origin: own?.origin ?? link?.admin ?? null,
      killCommand: isLive ? own.killCommand : null,
      hasOthers: source !== undefined,
    };
  });
}

export const countAlive = (rows: readonly RouterRow[]): number =>
  rows.filter(({ state }) => state !== "gone" && state !== "silent").length;

const unheard = (own: FollowedRouter | undefined): RouterRow["state"] => (own ? "gone" : "silent");

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
