import type { Clock, RouterId } from "@espalier/core";
import type { Verdict } from "./handshake.ts";
import type { Link, LinkLimits, PeerIdentity } from "./link.ts";

/** Which end of a connection has dialed. */
export type DialedBy = "us" | "them";

export interface Candidate {
  readonly peer: PeerIdentity;
  readonly dialedBy: DialedBy;
}

export interface LinkTableDeps {
  readonly clock: Clock;
  readonly limits: Pick<LinkLimits, "maxPeers" | "silentMs">;
  self(): RouterId;
  /** The router's highest known epoch, 0 for none. */
  highestEpoch(router: RouterId): number;
}

interface Entry {
  readonly link: Link;
  readonly dialedBy: DialedBy;
}

/**
 * The one link to each other router, and the rule for which of several connections to it is kept. When both have
 * dialed, the dial of the lower id is kept; when one has dialed twice, it has abandoned the first. Both ends apply the
 * rule to what they have seen so far, and arrive at the same connection.
 */
export class LinkTable {
  readonly #deps: LinkTableDeps;
  readonly #links = new Map<RouterId, Entry>();
  /** Connections that this router has accepted and the other end has not yet. */
  readonly #agreed = new Set<Candidate>();

  constructor(deps: LinkTableDeps) {
    this.#deps = deps;
  }

  get size(): number {
    return this.#links.size;
  }

  all(): readonly Link[] {
    return [...this.#links.values()].map(({ link }) => link);
  }

  has(router: RouterId): boolean {
    return this.#links.has(router);
  }

  agree(candidate: Candidate): void {
    this.#agreed.add(candidate);
  }

  /** An accepted connection has led to a link, or has ended without one. */
  settle(candidate: Candidate): void {
    this.#agreed.delete(candidate);
  }

  /** The decision on a connection whose other end has proved who it is. */
  verdictOn(candidate: Candidate): Verdict {
    const { router, epoch } = candidate.peer.origin;
    const existing = this.#links.get(router);
    const linkedEpoch = existing?.link.peer.origin.epoch;
    const isLive = existing !== undefined && !this.#isSilent(existing.link);
    if (isLive && linkedEpoch !== epoch) {
      return { reason: "router-id-taken", detail: `another router has the id ${router}`, knownEpoch: 0 };
    }
    const knownEpoch = Math.max(this.#deps.highestEpoch(router), linkedEpoch ?? 0);
    if (knownEpoch > epoch) {
      return { reason: "epoch-behind", detail: `epoch ${knownEpoch} of ${router} is known`, knownEpoch };
    }
    if (isLive) return this.#keeps(existing, candidate) ? "replaced" : undefined;
    const others = [...this.#agreed].filter((other) => other !== candidate);
    const agreed = others.filter(({ peer }) => peer.origin.router === router);
    if (agreed.some((other) => other.peer.origin.epoch === epoch && this.#keeps(other, candidate))) return "replaced";
    if (existing || agreed.length > 0 || this.#links.size + others.length < this.#deps.limits.maxPeers) {
      return undefined;
    }
    const detail = `limit of ${this.#deps.limits.maxPeers} linked routers reached: split the tier into cells`;
    return { reason: "too-many-peers", detail, knownEpoch: 0 };
  }

  /** Enters a link. @returns the link that it replaces */
  put(link: Link, dialedBy: DialedBy): Link | undefined {
    const { router } = link.peer.origin;
    const before = this.#links.get(router);
    this.#links.set(router, { link, dialedBy });
    return before?.link;
  }

  remove(link: Link): void {
    const { router } = link.peer.origin;
    if (this.#links.get(router)?.link === link) this.#links.delete(router);
  }

  #isSilent(link: Link): boolean {
    return this.#deps.clock.nowMs() - link.stats.lastHeardMs >= this.#deps.limits.silentMs;
  }

  #keeps(before: { readonly dialedBy: DialedBy }, { peer, dialedBy }: Candidate): boolean {
    if (before.dialedBy === dialedBy) return dialedBy === "us";
    const preferred = this.#deps.self() < peer.origin.router ? "us" : "them";
    return before.dialedBy === preferred;
  }
}
