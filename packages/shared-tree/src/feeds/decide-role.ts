import { hashText, mixWord, type RouterId } from "@espalier/core";
import type { FeedQuality, PostedClaim } from "./feed-claim.ts";

/**
 * `owner`: reads the events and journals them. `backup`: reads them and keeps the latest, to take over without loss.
 * `none`: does not read.
 */
export type FeedRole = "owner" | "backup" | "none";

/** A router that may read feeds for all routers. */
export interface Candidate {
  readonly router: RouterId;
  /** `candidateHash` of its id. */
  readonly hash: number;
  readonly isDraining: boolean;
  /** Targets whose event sockets it cannot reach. */
  readonly unreachable: ReadonlySet<string>;
  /** Undefined if regions do not count. */
  readonly region?: string | undefined;
}

const routerSeed = 0x51ed270b;

export function candidateHash(router: RouterId): number {
  return hashText(router, routerSeed);
}

/** The eligible candidates for a target: those that reach it and do not drain, else those that reach it, else all. */
export function eligibleFor(target: string, candidates: readonly Candidate[]): readonly Candidate[] {
  if (candidates.every(({ isDraining, unreachable }) => !isDraining && unreachable.size === 0)) return candidates;
  const reaching = candidates.filter(({ unreachable }) => !unreachable.has(target));
  const staying = reaching.filter(({ isDraining }) => !isDraining);
  if (staying.length > 0) return staying;
  return reaching.length > 0 ? reaching : candidates;
}

/**
 * Who may be the backup of a target: the eligible routers, unless the claimant is the only one. Then one of the others
 * reads along even if it has reported the target unreachable: only by trying does a router know whether it reaches it.
 */
export function backupsFor(
  claimant: RouterId | undefined,
  eligible: readonly Candidate[],
  all: readonly Candidate[],
): readonly Candidate[] {
  if (eligible === all || eligible.some(({ router }) => router !== claimant)) return eligible;
  const others = all.filter(({ router }) => router !== claimant);
  const staying = others.filter(({ isDraining }) => !isDraining);
  return staying.length > 0 ? staying : others;
}

/** How a router ranks among the candidates for one target. */
export interface Ranking {
  /** The first candidate. */
  readonly nominee: RouterId | undefined;
  /** The first candidate other than the claimant: it reads along, to take over. */
  readonly backup: RouterId | undefined;
  /** How many candidates are before the router; undefined when it is no candidate. */
  readonly rank: number | undefined;
}

/**
 * Rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998): each
 * candidate's weight for a target is a hash of both, so one that comes or goes moves no target between others. The highest
 * weight comes first, of equal ones the lower id; but candidates of the target's region come before all others.
 */
export function rankingOf(
  target: string,
  candidates: readonly Candidate[],
  question: {
    readonly self: RouterId;
    readonly claimant: RouterId | undefined;
    /** The routers that may be the backup. Default: the candidates. */
    readonly backups?: readonly Candidate[];
    /** The target's region; undefined if it has none. */
    readonly region?: string | undefined;
  },
): Ranking {
  const { self, claimant, backups = candidates, region } = question;
  const place = { hash: hashText(target), region };
  const own = candidates.find(({ router }) => router === self);
  let nominee: Weighted | undefined;
  let rank = 0;
  const ownWeighted = own && weigh(place, own);
  for (const candidate of candidates) {
    const weighted = weigh(place, candidate);
    if (!nominee || isHeavier(weighted, nominee)) nominee = weighted;
    if (ownWeighted && isHeavier(weighted, ownWeighted)) rank += 1;
  }
  const backup = heaviestBut(claimant, place, backups);
  return { nominee: nominee?.router, backup: backup?.router, rank: own ? rank : undefined };
}

function heaviestBut(
  excluded: RouterId | undefined,
  place: TargetPlace,
  candidates: readonly Candidate[],
): Weighted | undefined {
  let heaviest: Weighted | undefined;
  for (const candidate of candidates) {
    if (candidate.router === excluded) continue;
    const weighted = weigh(place, candidate);
    if (!heaviest || isHeavier(weighted, heaviest)) heaviest = weighted;
  }
  return heaviest;
}

interface TargetPlace {
  readonly hash: number;
  readonly region: string | undefined;
}

interface Weighted {
  readonly router: RouterId;
  /** Whether it is in the target's region. */
  readonly isNear: boolean;
  readonly weight: number;
}

function weigh(place: TargetPlace, { router, hash, region }: Candidate): Weighted {
  return {
    router,
    isNear: region !== undefined && region === place.region,
    weight: mixWord(place.hash ^ hash),
  };
}

function isHeavier(one: Weighted, other: Weighted): boolean {
  if (one.isNear !== other.isNear) return one.isNear;
  return one.weight !== other.weight ? one.weight > other.weight : one.router < other.router;
}

/** A nominee that has not claimed a feed for so long loses its turn to the next candidate. */
export const turnMs = 1_000;

export interface RoleQuestion {
  readonly self: RouterId;
  readonly ranking: Ranking;
  /** The prevailing claim among those of live routers. */
  readonly holding: PostedClaim | undefined;
  /** Quality of this router's own reading of the feed. */
  readonly quality: FeedQuality;
  /** It may take the feed from a live claimant. */
  readonly mayTakeOver: boolean;
  /** For how long there has been no live claim. */
  readonly unclaimedMs: number;
}

const ranks: Readonly<Record<FeedQuality, number>> = { none: 0, void: 1, partial: 2, complete: 3 };

/** This router's role for a feed. */
export function decideRole(question: RoleQuestion): FeedRole {
  const { self, ranking, holding, quality, mayTakeOver, unclaimedMs } = question;
  const { nominee, backup, rank } = ranking;
  if (!holding) {
    if (rank === undefined) return "none";
    const turn = Math.floor(unclaimedMs / turnMs);
    if (rank <= turn) return "owner";
    return rank === turn + 1 ? "backup" : "none";
  }
  if (holding.origin.router === self) return "owner";
  const isReady = ranks[quality] >= Math.max(ranks.partial, ranks[holding.claim.quality]);
  if (nominee === self && isReady && mayTakeOver) return "owner";
  return backup === self ? "backup" : "none";
}
