import type { RouterId } from "@espalier/core";
import type { Link } from "../link/link.ts";
import type { Origin } from "../origin.ts";
import type { Member } from "../replica-ports.ts";
import type { MembershipLimits } from "./membership.ts";

/**
 * What a router says of itself. Only that router writes it, under a higher incarnation each time; others pass it on
 * unchanged (Das, Gupta and Motivala, "SWIM", 2002, where incarnations serve to refute suspicions alone).
 */
export interface MemberRecord {
  readonly origin: Origin;
  readonly incarnation: number;
  /** It has said goodbye. */
  readonly hasLeft: boolean;
  readonly isDraining: boolean;
  /** `host:port` where it can be dialed; empty when it cannot. */
  readonly address: string;
  /** Targets whose event sockets it cannot reach. */
  readonly unreachable: readonly string[];
  /** Ids of the routers it has a link to. */
  readonly links: readonly string[];
  /** Its region; empty if nothing was heard of it yet. */
  readonly region?: string | undefined;
}

/** A router's claim about another one that no path leads to, for that one to refute. */
export interface MemberClaim {
  readonly origin: Origin;
  /** The latest incarnation that the author of the claim knew. */
  readonly incarnation: number;
  readonly state: "suspect" | "down";
}

/** Whether a record or claim of one router is of a later epoch or incarnation than another. */
export function isLater(
  one: { readonly origin: Origin; readonly incarnation: number },
  other: { readonly origin: Origin; readonly incarnation: number },
): boolean {
  if (one.origin.epoch !== other.origin.epoch) return one.origin.epoch > other.origin.epoch;
  return one.incarnation > other.incarnation;
}

/**
 * A router counts by one for each record of its own, and every other router gets that within moments. A number much
 * further ahead is not the router's own. To answer it, the router would have to count up to a bound, after which it
 * could not publish any more.
 */
const maxAhead = 65_536;

/** Whether an incarnation is plausible for a router that is known to have counted this far. */
export function isWithinReach(knownIncarnation: number, incarnation: number): boolean {
  return incarnation <= knownIncarnation + maxAhead;
}

/** The record of a router that has said nothing of itself yet. It is not passed on. */
export function unheardRecord(origin: Origin, address: string): MemberRecord {
  const unsaid = { hasLeft: false, isDraining: false, unreachable: [], links: [], region: "" };
  return { origin, incarnation: 0, address, ...unsaid };
}

/** What is known of another router. Times are process time. */
export interface MemberEntry {
  record: MemberRecord;
  /** The routers that it has links to, by its record. */
  links: ReadonlySet<RouterId>;
  link: Link | undefined;
  /** Undefined until it was reachable on some path: a stale record alone makes no member. */
  state: Member["state"] | undefined;
  stateSinceMs: number;
  /** Since when no path leads to it; undefined while one does. */
  unreachableSinceMs: number | undefined;
  /** When it last refused a dial: nothing listens there, so its process is gone unless others hear it. */
  refusedAtMs: number;
  /** Until when another router's answer to a probe counts as a path. */
  vouchedUntilMs: number;
  /** The claim of others, or of this router, about its latest incarnation. */
  claim: MemberClaim | undefined;
  /** When each peer said that it had found it dead. */
  readonly downBy: Map<RouterId, number>;
  /** The link that brought the record. */
  source: Link | undefined;
  /** The state that listeners know. */
  reportedState: Member["state"] | undefined;
  /** Listeners must be called. */
  isChanged: boolean;
}

/** A sign of death may precede the loss of the last path by so much to count for the same death. */
const signBeforeMs = 1_000;
/** A member that so many routers have found dead themselves is as dead as one whose address refuses connections. */
const confirmedBy = 3;
const never = Number.NEGATIVE_INFINITY;

/** The other routers, by id, and which of them a path leads to. */
export class MemberTable {
  readonly entries = new Map<RouterId, MemberEntry>();
  readonly #limits: MembershipLimits;

  constructor(limits: MembershipLimits) {
    this.#limits = limits;
  }

  /** The router's entry if it is of this epoch. */
  of({ router, epoch }: Origin): MemberEntry | undefined {
    const entry = this.entries.get(router);
    return entry?.record.origin.epoch === epoch ? entry : undefined;
  }

  /**
   * Merges a router's own record, if it is news. A record by the router's own link wins over what others have passed on
   * in its name. For a router that has a link, records from others are ignored.
   *
   * @param source who passed it on; undefined for what a handshake said
   * @returns `superseded`: it is of a later epoch than the known one, which must be replaced; `full`: no capacity
   */
  merge(record: MemberRecord, source: Link | undefined, nowMs: number): "news" | "old" | "superseded" | "full" {
    const entry = this.entries.get(record.origin.router);
    if (!entry) {
      if (this.entries.size >= this.#limits.maxMembers) return "full";
      this.entries.set(record.origin.router, newEntry(record, source, nowMs));
      return "news";
    }
    if (source && entry.link && source !== entry.link) return "old";
    const isFirstOwnWord = entry.link !== undefined && source === entry.link && entry.source !== source;
    const isSameEpoch = record.origin.epoch === entry.record.origin.epoch;
    if (!isLater(record, entry.record) && !(isFirstOwnWord && isSameEpoch)) return "old";
    if (isSameEpoch && !isFirstOwnWord && !isCredible(entry.record, record)) return "old";
    if (record.origin.epoch > entry.record.origin.epoch) return "superseded";
    const refutes = entry.claim !== undefined && record.incarnation > entry.claim.incarnation;
    entry.record = record;
    entry.links = linksOf(record);
    entry.source = source;
    entry.isChanged = true;
    if (refutes) {
      entry.claim = undefined;
      entry.downBy.clear();
      if (entry.unreachableSinceMs !== undefined) entry.unreachableSinceMs = nowMs;
      if (entry.state === "down") entry.state = "suspect";
    }
    return "news";
  }

  /**
   * Keeps a claim that is worse than, or of a later incarnation than, the one kept.
   *
   * @param by the peer that itself found the router down, for a claim of that; undefined for this router's
   * @returns whether it was kept
   */
  claim(claim: MemberClaim, by: RouterId | undefined, nowMs: number): boolean {
    const entry = this.of(claim.origin);
    if (!entry?.state || claim.incarnation < entry.record.incarnation) return false;
    if (!isWithinReach(entry.record.incarnation, claim.incarnation)) return false;
    if (claim.state === "down" && by !== undefined) entry.downBy.set(by, nowMs);
    const kept = entry.claim;
    if (kept && !isLater(claim, kept) && (kept.state === "down" || claim.state === "suspect")) return false;
    if (kept && isLater(kept, claim)) return false;
    entry.claim = claim;
    return true;
  }

  /** The routers that a path of links leads to. For each link the record of the router nearer to this one counts. */
  reachable(nowMs: number): Set<RouterId> {
    const reached = new Set<RouterId>();
    for (const [router, entry] of this.entries) {
      if (entry.record.hasLeft) continue;
      if (entry.link || entry.vouchedUntilMs > nowMs) reached.add(router);
    }
    // A set's iteration also visits what is added during it.
    for (const router of reached) {
      if (reached.size === this.entries.size) break;
      for (const next of this.entries.get(router)!.links) {
        const entry = this.entries.get(next);
        if (entry && !entry.record.hasLeft) reached.add(next);
      }
    }
    return reached;
  }

  /**
   * The present state of a member.
   *
   * @param scale by how much this router's own slowness stretches its timeouts
   */
  evaluate(entry: MemberEntry, isReached: boolean, nowMs: number, scale: number): MemberEntry["state"] {
    if (entry.record.hasLeft) return entry.state === undefined ? undefined : "left";
    if (isReached) {
      entry.unreachableSinceMs = undefined;
      return "alive";
    }
    entry.unreachableSinceMs ??= nowMs;
    if (entry.state === undefined || entry.state === "down") return entry.state;
    const unreachableMs = nowMs - entry.unreachableSinceMs;
    const signsFromMs = entry.unreachableSinceMs - signBeforeMs;
    const isRefused = entry.refusedAtMs >= signsFromMs;
    const limitMs = isRefused ? this.#limits.goneMs : this.#suspicionMs(confirmationsOf(entry, signsFromMs));
    return unreachableMs >= limitMs * scale ? "down" : "suspect";
  }

  /**
   * The time until a suspect is down. The more others have found the member dead themselves, the shorter it is, down to
   * `goneMs` (Dadgar, Phillips and Currey, "Lifeguard", 2017, section IV). A suspicion by one router alone does not
   * shorten it.
   */
  #suspicionMs(confirmations: number): number {
    const { suspectMs, goneMs } = this.#limits;
    const share = Math.log(Math.max(1, Math.min(confirmations, confirmedBy))) / Math.log(confirmedBy);
    return suspectMs - (suspectMs - goneMs) * share;
  }

  /** Whether the entry is obsolete. */
  isForgettable(entry: MemberEntry, nowMs: number): boolean {
    const { forgetMs, suspectMs } = this.#limits;
    if (entry.link) return false;
    if (entry.state === undefined) return nowMs - entry.stateSinceMs >= forgetMs + suspectMs;
    return (entry.state === "down" || entry.state === "left") && nowMs - entry.stateSinceMs >= forgetMs;
  }
}

function confirmationsOf({ downBy }: MemberEntry, sinceMs: number): number {
  let count = 0;
  for (const saidAtMs of downBy.values()) if (saidAtMs >= sinceMs) count += 1;
  return count;
}

/** For a router that has said nothing yet, the first number heard may be any. */
function isCredible(known: MemberRecord, next: MemberRecord): boolean {
  return known.incarnation === 0 || isWithinReach(known.incarnation, next.incarnation);
}

function linksOf({ links }: MemberRecord): ReadonlySet<RouterId> {
  return new Set(links as readonly RouterId[]);
}

function newEntry(record: MemberRecord, source: Link | undefined, nowMs: number): MemberEntry {
  return {
    record,
    links: linksOf(record),
    link: undefined,
    state: undefined,
    stateSinceMs: nowMs,
    unreachableSinceMs: undefined,
    refusedAtMs: never,
    vouchedUntilMs: never,
    claim: undefined,
    downBy: new Map(),
    source,
    reportedState: undefined,
    isChanged: false,
  };
}

/** The entry as other parts of the mesh see it. */
export function memberOf(entry: MemberEntry): Member {
  const { origin, isDraining, unreachable, region } = entry.record;
  return { origin, state: entry.state ?? "alive", isDraining, isLinked: entry.link !== undefined, unreachable, region };
}
