/** A router that the page follows, as far as the choice of a source goes. */
export interface Candidate {
  readonly origin: string;
  /** It has told what it knows, and is there. */
  readonly isLive: boolean;
}

/**
 * The router whose view of the fleet the page shows: the one that it has shown, as long as that one lives, so that
 * nothing jumps about.
 *
 * @returns undefined when none lives
 */
export function chooseSource(current: string | undefined, candidates: readonly Candidate[]): string | undefined {
  const live = candidates.filter(({ isLive }) => isLive);
  return (live.find(({ origin }) => origin === current) ?? live[0])?.origin;
}

/** Routers that are followed at a time. */
export const maxFollowed = 8;

export interface WhomToFollow {
  /** Followed now, in the order in which that began. */
  readonly followed: readonly string[];
  /** Named by routers that are followed. */
  readonly named: readonly string[];
  /** Those to which the page's policy lets it talk. */
  readonly allowed: ReadonlySet<string>;
}

/** The routers to begin to follow. */
export function whomToFollow({ followed, named, allowed }: WhomToFollow): readonly string[] {
  const fresh = [...new Set(named)].filter((origin) => allowed.has(origin) && !followed.includes(origin));
  return fresh.slice(0, Math.max(0, maxFollowed - followed.length));
}

const firstRetryMs = 1_000;
const lastRetryMs = 15_000;

/** How long to wait before a router that did not answer `failures` times in a row is tried again. */
export function retryDelayMs(failures: number): number {
  return Math.min(lastRetryMs, firstRetryMs * 2 ** Math.max(0, failures - 1));
}
