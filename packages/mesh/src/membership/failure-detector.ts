import type { Cancel, Clock, Logger, Random, RouterId } from "@espalier/core";
import type { Link } from "../link/link.ts";
import type { Origin } from "../origin.ts";
import type { Member } from "../replica-ports.ts";
import { subscribe } from "../subscribe.ts";
import type { DialPlan } from "./dial-plan.ts";
import type { Gossip } from "./gossip.ts";
import { type MemberClaim, type MemberEntry, type MemberTable, memberOf } from "./member-table.ts";
import type { MembershipChange, MembershipLimits, MembershipMeters } from "./membership.ts";
import { encodeMembership } from "./membership-frames.ts";
import type { ProcessTime } from "./process-time.ts";

/** How many other routers are asked whether they hear a silent peer (k of SWIM). */
const maxProbed = 3;
/** Peers that one router may ask about at a time, per link: further probes get no answer. */
const maxWaitingProbes = 16;

interface WatchedLink {
  readonly link: Link;
  heardAtMs: number;
  pingNumber: number;
  pingedAtMs: number;
  /** On the monotonic clock, for the round trip. */
  pingClockMs: number;
  /** Others were asked during this silence. */
  isProbed: boolean;
  /** Routers to notify when the ping of this number is answered. */
  readonly askers: Map<Link, number>;
}

export interface LinkWatchDeps {
  readonly clock: Clock;
  readonly processTime: ProcessTime;
  readonly random: Random;
  readonly limits: MembershipLimits;
  /** The digest that pings carry. */
  digest(): number;
  /** Nothing was heard on a link for too long. */
  silent(link: Link): void;
  probed(origin: Origin): void;
}

/** Pings links, measures them, notices silence, and asks others about it. */
export class LinkWatch {
  readonly #deps: LinkWatchDeps;
  readonly #watched = new Map<RouterId, WatchedLink>();

  constructor(deps: LinkWatchDeps) {
    this.#deps = deps;
  }

  add(link: Link): void {
    const nowMs = this.#deps.processTime.nowMs();
    const watched: WatchedLink = {
      link,
      heardAtMs: nowMs,
      pingNumber: 0,
      pingedAtMs: nowMs,
      pingClockMs: 0,
      isProbed: false,
      askers: new Map(),
    };
    this.#watched.set(link.peer.origin.router, watched);
    this.#ping(watched);
  }

  remove(link: Link): void {
    if (this.#of(link)) this.#watched.delete(link.peer.origin.router);
    for (const { askers } of this.#watched.values()) askers.delete(link);
  }

  heard(link: Link): void {
    const watched = this.#of(link);
    if (!watched) return;
    watched.heardAtMs = this.#deps.processTime.nowMs();
    watched.isProbed = false;
  }

  acknowledged(link: Link, number: number): void {
    const watched = this.#of(link);
    if (!watched || number > watched.pingNumber) return;
    if (number === watched.pingNumber) link.roundTripMs = this.#deps.clock.nowMs() - watched.pingClockMs;
    const { origin } = link.peer;
    for (const [asker, wanted] of watched.askers) {
      if (number < wanted) continue;
      watched.askers.delete(asker);
      for (const frame of encodeMembership({ kind: "heard", origin })) asker.send("membership", frame);
    }
  }

  /** `asker` requests an indirect probe: that router is pinged, and its answer to this ping is passed on. */
  probe(asker: Link, origin: Origin): void {
    const watched = this.#watched.get(origin.router);
    if (!watched || watched.link === asker || watched.link.peer.origin.epoch !== origin.epoch) return;
    if (!watched.askers.has(asker) && watched.askers.size >= maxWaitingProbes) return;
    watched.askers.set(asker, watched.pingNumber + 1);
    this.#ping(watched);
  }

  /** Asks up to three others, drawn at random, whether they hear that router. */
  askOthers(origin: Origin): void {
    const others = [...this.#watched.values()].filter(({ link, isProbed }) => {
      return !isProbed && link.peer.origin.router !== origin.router;
    });
    if (others.length === 0) return;
    this.#deps.probed(origin);
    const [frame] = encodeMembership({ kind: "probe", origin });
    for (let asked = 0; asked < maxProbed && others.length > 0; asked++) {
      const [chosen] = others.splice(this.#deps.random.integer(others.length), 1);
      chosen!.link.send("membership", frame!);
    }
  }

  /** @param scale by how much this router's own slowness stretches its timeouts */
  tick(scale: number): void {
    const { limits, processTime } = this.#deps;
    const nowMs = processTime.nowMs();
    for (const watched of [...this.#watched.values()]) {
      const silentMs = nowMs - watched.heardAtMs;
      const pingedMs = nowMs - watched.pingedAtMs;
      if (silentMs >= limits.silentMs * scale) {
        this.#deps.silent(watched.link);
        continue;
      }
      if (pingedMs >= limits.busyPingMs || (silentMs >= limits.pingMs && pingedMs >= limits.pingMs)) {
        this.#ping(watched);
      }
      if (silentMs >= limits.probeMs * scale && !watched.isProbed) {
        watched.isProbed = true;
        this.askOthers(watched.link.peer.origin);
      }
    }
  }

  #ping(watched: WatchedLink): void {
    watched.pingNumber += 1;
    watched.pingedAtMs = this.#deps.processTime.nowMs();
    watched.pingClockMs = this.#deps.clock.nowMs();
    const message = { kind: "ping", number: watched.pingNumber, digest: this.#deps.digest() } as const;
    for (const frame of encodeMembership(message)) watched.link.send("membership", frame);
  }

  #of(link: Link): WatchedLink | undefined {
    const watched = this.#watched.get(link.peer.origin.router);
    return watched?.link === link ? watched : undefined;
  }
}

export interface FailureDetectorDeps {
  readonly processTime: ProcessTime;
  readonly table: MemberTable;
  readonly gossip: Gossip;
  readonly plan: DialPlan;
  readonly meters: MembershipMeters;
  readonly logger: Logger;
  readonly limits: Pick<MembershipLimits, "maxRouters">;
  /** Whether silence says nothing about any member now. */
  isCutOff(): boolean;
  /** Ends any link to a member whose epoch is over. */
  unlink(entry: MemberEntry): void;
}

/** Evaluates the members after every event, and reports to listeners what has changed. */
export class FailureDetector {
  readonly #deps: FailureDetectorDeps;
  readonly #listeners = new Set<(change: MembershipChange) => void>();
  #isTooLarge = false;

  constructor(deps: FailureDetectorDeps) {
    this.#deps = deps;
  }

  onChange(listener: (change: MembershipChange) => void): Cancel {
    return subscribe(this.#listeners, listener);
  }

  stop(): void {
    this.#listeners.clear();
  }

  /** @param scale by how much this router's own slowness stretches its timeouts */
  evaluateAll(scale: number): void {
    const { table, processTime } = this.#deps;
    const nowMs = processTime.nowMs();
    const reached = table.reachable(nowMs);
    const isCutOff = this.#deps.isCutOff();
    const changed: MemberEntry[] = [];
    let hasForgotten = false;
    for (const [router, entry] of table.entries) {
      const stays = isCutOff && (entry.state === "alive" || entry.state === "suspect");
      const state = table.evaluate(entry, stays || reached.has(router), nowMs, scale);
      if (state !== entry.state && state !== undefined) this.#become(entry, state, nowMs);
      if (entry.isChanged && entry.state !== undefined) changed.push(entry);
      entry.isChanged = false;
      if (!table.isForgettable(entry, nowMs)) continue;
      if (entry.state === "down") this.#deps.plan.forgotten(entry);
      this.end(entry);
      hasForgotten = true;
    }
    if (changed.length === 0 && !hasForgotten) return;
    this.#deps.plan.update();
    this.#count();
    for (const entry of changed) {
      const before = entry.reportedState;
      entry.reportedState = entry.state;
      this.#tell({ member: memberOf(entry), before, isForgotten: false });
    }
  }

  /** The entry is obsolete: its epoch was replaced by a later one, or it is forgotten. */
  end(entry: MemberEntry): void {
    this.#deps.unlink(entry);
    this.#deps.table.entries.delete(entry.record.origin.router);
    if (entry.reportedState === undefined) return;
    const state = entry.state === "left" ? "left" : "down";
    this.#tell({ member: { ...memberOf(entry), state }, before: entry.reportedState, isForgotten: true });
  }

  #become(entry: MemberEntry, state: Member["state"], nowMs: number): void {
    const { gossip, logger, meters, table } = this.#deps;
    const { origin, incarnation } = entry.record;
    logger.info(`a router is ${state}`, { router: origin.router, epoch: origin.epoch, was: entry.state });
    if (entry.state === undefined) gossip.changed(origin.router);
    entry.state = state;
    entry.stateSinceMs = nowMs;
    entry.isChanged = true;
    meters.became(state);
    if (state !== "suspect" && state !== "down") return;
    const claim: MemberClaim = { origin, incarnation, state };
    // This finding is the router's own, even if others have claimed the same already.
    if (table.claim(claim, undefined, nowMs) || state === "down") gossip.spread(claim, undefined);
  }

  #count(): void {
    const counts = { alive: 0, suspect: 0, down: 0, left: 0 };
    for (const { state } of this.#deps.table.entries.values()) if (state) counts[state] += 1;
    this.#deps.meters.members(counts);
    this.#checkSize(counts.alive + counts.suspect + 1);
  }

  #checkSize(routers: number): void {
    const { limits, logger } = this.#deps;
    const isTooLarge = routers > limits.maxRouters;
    if (isTooLarge && !this.#isTooLarge) {
      logger.warn("too many routers for one mesh: split the tier into cells", { routers, most: limits.maxRouters });
    }
    this.#isTooLarge = isTooLarge;
  }

  #tell(change: MembershipChange): void {
    for (const listener of [...this.#listeners]) listener(change);
  }
}
