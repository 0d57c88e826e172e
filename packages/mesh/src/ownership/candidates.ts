import type { RouterId } from "@espalier/common";
import { hashText, mixWord } from "../membership/text-hash.ts";

/** A router that may read feeds for everybody. */
export interface Candidate {
  readonly router: RouterId;
  /** `candidateHash` of its id. */
  readonly hash: number;
  readonly isDraining: boolean;
  /** Targets whose event sockets it cannot reach. */
  readonly unreachable: ReadonlySet<string>;
}

const routerSeed = 0x51ed270b;

export function candidateHash(router: RouterId): number {
  return hashText(router, routerSeed);
}

/** The candidates that a target is given to: those that reach it and do not drain, else those that reach it, else all. */
export function eligibleFor(target: string, candidates: readonly Candidate[]): readonly Candidate[] {
  if (candidates.every(({ isDraining, unreachable }) => !isDraining && unreachable.size === 0)) return candidates;
  const reaching = candidates.filter(({ unreachable }) => !unreachable.has(target));
  const staying = reaching.filter(({ isDraining }) => !isDraining);
  if (staying.length > 0) return staying;
  return reaching.length > 0 ? reaching : candidates;
}

/**
 * Who may be the heir of a target: those that it is given to, unless that is the claimant alone. Then one of the others
 * reads along whatever it has said before, for whether a router reaches a target is only known while it tries.
 */
export function heirsFor(
  claimant: RouterId | undefined,
  eligible: readonly Candidate[],
  all: readonly Candidate[],
): readonly Candidate[] {
  if (eligible === all || eligible.some(({ router }) => router !== claimant)) return eligible;
  const others = all.filter(({ router }) => router !== claimant);
  const staying = others.filter(({ isDraining }) => !isDraining);
  return staying.length > 0 ? staying : others;
}

/** How a router stands among the candidates for one target. */
export interface Standing {
  /** The candidate of the highest weight. */
  readonly nominee: RouterId | undefined;
  /** The candidate of the highest weight besides the claimant: it reads along, to take over. */
  readonly heir: RouterId | undefined;
  /** How many candidates have a higher weight than the router; undefined when it is no candidate. */
  readonly rank: number | undefined;
}

/**
 * Rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998): each candidate's
 * weight for a target is a hash of both, so one that comes or goes moves no target between others. Equal weights go by
 * the lower id.
 */
export function standingOf(
  target: string,
  candidates: readonly Candidate[],
  question: {
    readonly self: RouterId;
    readonly claimant: RouterId | undefined;
    /** Who may be the heir; the candidates when left out. */
    readonly heirs?: readonly Candidate[];
  },
): Standing {
  const { self, claimant, heirs = candidates } = question;
  const targetHash = hashText(target);
  const own = candidates.find(({ router }) => router === self);
  let nominee: Weighted | undefined;
  let rank = 0;
  const ownWeighted = own && weigh(targetHash, own);
  for (const candidate of candidates) {
    const weighted = weigh(targetHash, candidate);
    if (!nominee || isHeavier(weighted, nominee)) nominee = weighted;
    if (ownWeighted && isHeavier(weighted, ownWeighted)) rank += 1;
  }
  const heir = heaviestBut(claimant, targetHash, heirs);
  return { nominee: nominee?.router, heir: heir?.router, rank: own ? rank : undefined };
}

function heaviestBut(
  excluded: RouterId | undefined,
  targetHash: number,
  candidates: readonly Candidate[],
): Weighted | undefined {
  let heaviest: Weighted | undefined;
  for (const candidate of candidates) {
    if (candidate.router === excluded) continue;
    const weighted = weigh(targetHash, candidate);
    if (!heaviest || isHeavier(weighted, heaviest)) heaviest = weighted;
  }
  return heaviest;
}

interface Weighted {
  readonly router: RouterId;
  readonly weight: number;
}

function weigh(targetHash: number, { router, hash }: Candidate): Weighted {
  return { router, weight: mixWord(targetHash ^ hash) };
}

function isHeavier(one: Weighted, other: Weighted): boolean {
  return one.weight !== other.weight ? one.weight > other.weight : one.router < other.router;
}
