import { type Cancel, counterBy, counterOf, type Meter, type RouterId } from "@espalier/core";
import type { DialFailure, Link, ProcessPorts } from "../link/link.ts";
import type { Origin } from "../origin.ts";
import type { Member } from "../replica-ports.ts";
import type { LinkEnd } from "../wire/link-frames.ts";
import { DialPlan } from "./dial-plan.ts";
import { FailureDetector, LinkWatch } from "./failure-detector.ts";
import { Gossip, OwnRecord } from "./gossip.ts";
import {
  type MemberClaim,
  type MemberEntry,
  type MemberRecord,
  MemberTable,
  memberOf,
  unheardRecord,
} from "./member-table.ts";
import { decodeMembership, encodeMembership } from "./membership-frames.ts";
import { createProcessTime, PauseReport, type ProcessTime } from "./process-time.ts";

/**
 * Bounds, and times in milliseconds of the router's own running time. A router that falls silent is suspected after at
 * most `silentMs` plus two ticks, down `suspectMs` later, and forgotten `forgetMs` after that.
 */
export type MembershipLimits = Readonly<typeof defaultMembershipLimits>;

export const defaultMembershipLimits = {
  /** Period of the checks. */
  tickMs: 100,
  /** A link on which nothing was heard for so long is pinged. */
  pingMs: 500,
  /** A busy link is pinged this often too: pings measure the round trip and compare the tables. */
  busyPingMs: 1_000,
  /** A peer that has been silent for so long is probed: others are asked whether they hear it. */
  probeMs: 900,
  /** A link on which nothing was heard for so long is ended. */
  silentMs: 1_750,
  /** A member that no path leads to is down after so long. */
  suspectMs: 1_700,
  /** The same for a member whose process is known to be gone. */
  goneMs: 250,
  /** A member that is down or has left is forgotten after so long. */
  forgetMs: 1_700,
  /** The address of a forgotten member is dialed for so long, so that a split mesh whose seeds are dead heals. */
  rejoinMs: 600_000,
  /** Members that are kept, without forgotten ones. */
  maxMembers: 256,
  /** Routers that a mesh is made for, each with a link to each. Beyond it operators get a warning. */
  maxRouters: 64,
  maxRejoinAddresses: 64,
};

/** Something about a member has changed: its state, its epoch, its link, or what it says about itself. */
export interface MembershipChange {
  readonly member: Member;
  /** The state that listeners last saw; undefined for a new member. */
  readonly before: Member["state"] | undefined;
  /** It is no longer a member. A later epoch of the same router has a change of its own. */
  readonly isForgotten: boolean;
}

export interface MembershipDeps extends ProcessPorts {
  /** This epoch of this router. It may rise while the membership runs. */
  readonly self: () => Origin;
  /** Where others can dial this router, `host:port`; undefined when they cannot. */
  readonly address: () => string | undefined;
  /** Where this router is; undefined if that is not said. */
  readonly region?: string | undefined;
  /** Present lag of the event loop in milliseconds. */
  readonly lagMs: () => number;
  /** CPU time that this process has used, in milliseconds. */
  readonly cpuMs: () => number;
  /** Whether silence says nothing about any member now. Default: never. */
  readonly isCutOff?: () => boolean;
  /** Dials an address until it is forgotten; at once when it is being dialed already and no link is up. */
  dial(address: string): void;
  /** Stops dialing an address; its link stays. */
  forget(address: string): void;
  readonly limits?: Partial<MembershipLimits>;
}

/** The most of the time between two ticks that counts, in ticks. */
const maxTicksCounted = 2.5;
/** Lag up to here is normal. Above it, each `lagUnitMs` lengthens timeouts by their whole length, up to four times. */
const normalLagMs = 100;
const lagUnitMs = 500;
/** How many times lag adds a timeout's own length to it. */
const maxStretch = 3;
const noLinks: ReadonlySet<RouterId> = new Set();

/**
 * Who the other routers are, and which of them are alive.
 *
 * Every router publishes whom it has links to. A member is alive while a path of links leads to it, by the records of
 * the routers along it; a link counts while something is heard on it. A member without a path is suspected, and gets
 * the claim; unless it refutes the claim under a higher incarnation, it is considered dead. (SWIM by Das, Gupta and
 * Motivala, 2002; timeouts stretched by one's own slowness as in Lifeguard by Dadgar, Phillips and Currey, 2017.)
 *
 * Wires records, links, gossip and dialing together.
 *
 * The owner of the links reports them to it. It sends on their channel `membership` and ends silent ones.
 */
export class Membership {
  readonly #deps: MembershipDeps;
  readonly #limits: MembershipLimits;
  readonly #processTime: ProcessTime;
  readonly #meters: MembershipMeters;
  readonly #pauses: PauseReport;
  readonly #table: MemberTable;
  readonly #own: OwnRecord;
  readonly #watch: LinkWatch;
  readonly #gossip: Gossip;
  readonly #plan: DialPlan;
  readonly #detector: FailureDetector;
  #cancelTick: Cancel | undefined;
  #ownEpoch: number;

  constructor(deps: MembershipDeps) {
    this.#deps = deps;
    this.#limits = { ...defaultMembershipLimits, ...deps.limits };
    const limits = this.#limits;
    this.#processTime = createProcessTime(deps.clock, limits.tickMs * maxTicksCounted);
    this.#meters = createMembershipMeters(deps.meter);
    this.#pauses = new PauseReport({ ...deps, paused: () => this.#meters.paused() });
    this.#table = new MemberTable(limits);
    this.#own = new OwnRecord(deps.self, deps.address, deps.region);
    this.#ownEpoch = deps.self().epoch;
    const shared = { processTime: this.#processTime, table: this.#table, limits };
    this.#gossip = new Gossip({ ...shared, scheduler: deps.scheduler, own: this.#own });
    this.#plan = new DialPlan({ ...shared, ports: deps });
    this.#watch = new LinkWatch({
      ...shared,
      clock: deps.clock,
      random: deps.random,
      digest: () => this.#gossip.digest(),
      silent: (link) => this.#endSilent(link),
      probed: () => this.#meters.probed(),
    });
    this.#detector = new FailureDetector({
      ...shared,
      gossip: this.#gossip,
      plan: this.#plan,
      meters: this.#meters,
      logger: deps.logger,
      isCutOff: deps.isCutOff ?? (() => false),
      unlink: (entry) => this.#endLink(entry),
    });
  }

  start(): void {
    // What passed before, while a carrier was waited for, is no pause.
    this.#processTime.tick();
    this.#cancelTick = this.#deps.scheduler.every(this.#limits.tickMs, () => this.#tick());
  }

  stop(): void {
    this.#cancelTick?.();
    this.#cancelTick = undefined;
    this.#gossip.stop();
    this.#plan.stop();
    this.#detector.stop();
  }

  linkUp(link: Link): void {
    const { origin, address = "" } = link.peer;
    const known = this.#table.entries.get(origin.router);
    if (known && known.record.origin.epoch > origin.epoch) {
      link.close("replaced");
      return;
    }
    this.#merge(unheardRecord(origin, address), undefined);
    const entry = this.#table.of(origin);
    if (!entry) {
      link.close("stopped");
      return;
    }
    if (entry.link) this.#unlink(entry, entry.link);
    entry.link = link;
    entry.isChanged = true;
    this.#watch.add(link);
    this.#evaluate();
    this.#gossip.addLink(link);
  }

  linkDown(link: Link, why: LinkEnd): void {
    const entry = this.#table.of(link.peer.origin);
    if (entry?.link !== link) return;
    this.#unlink(entry, link);
    this.#deps.logger.debug("member unlinked", { router: link.peer.origin.router, why });
    if (!entry.record.hasLeft) {
      this.#plan.redial(entry);
      this.#watch.askOthers(entry.record.origin);
    }
    this.#evaluate();
  }

  dialFailed(address: string, why: DialFailure): void {
    if (why.kind === "rejected" && why.reason === "self") this.#plan.isOwn(address);
    if (why.kind !== "refused") return;
    for (const entry of this.#table.entries.values()) {
      if (entry.record.address === address && !entry.link) entry.refusedAtMs = this.#processTime.nowMs();
    }
    this.#evaluate();
  }

  /**
   * Takes a payload of channel `membership`.
   *
   * @throws EspalierError `mesh_frame_invalid` for bytes that no member writes; nothing of them is applied
   */
  receive(link: Link, frame: Uint8Array): void {
    const message = decodeMembership(frame);
    if (this.#table.of(link.peer.origin)?.link !== link) return;
    this.#watch.heard(link);
    switch (message.kind) {
      case "ping":
        for (const ack of encodeMembership({ kind: "ack", number: message.number })) link.send("membership", ack);
        this.#gossip.compare(link, message.digest);
        return;
      case "ack":
        this.#watch.acknowledged(link, message.number);
        return;
      case "probe":
        this.#watch.probe(link, message.origin);
        return;
      case "records":
        for (const record of message.records) this.#takeRecord(record, link);
        break;
      case "claims":
        for (const claim of message.claims) this.#takeClaim(claim, link);
        break;
      case "heard":
        this.#takeVouch(message.origin.router, message.origin.epoch);
    }
    this.#evaluate();
  }

  /** A frame of any other channel arrived. */
  heard(link: Link): void {
    this.#watch.heard(link);
  }

  /** The other routers, those that are down or have left included until they are forgotten. */
  members(): readonly Member[] {
    return [...this.#table.entries.values()].filter(({ state }) => state !== undefined).map(memberOf);
  }

  member(router: RouterId): Member | undefined {
    const entry = this.#table.entries.get(router);
    return entry?.state === undefined ? undefined : memberOf(entry);
  }

  /** The router's latest known epoch, by its own record or by others; 0 for none. An earlier one gets no link. */
  epochOf(router: RouterId): number {
    return this.#table.entries.get(router)?.record.origin.epoch ?? 0;
  }

  /** The address that a member says it can be dialed at. */
  addressOf(router: RouterId): string | undefined {
    return this.#table.entries.get(router)?.record.address || undefined;
  }

  /** Whether a live member says that it listens there. */
  isReached(address: string): boolean {
    for (const { record, state } of this.#table.entries.values()) {
      if (state === "alive" && record.address === address) return true;
    }
    return false;
  }

  /** The routers that a router, this one included, says it has links to. */
  linksOf(router: RouterId): ReadonlySet<RouterId> {
    if (router !== this.#deps.self().router) {
      return this.#table.entries.get(router)?.links ?? noLinks;
    }
    return new Set([...this.#table.entries].filter(([, { link }]) => link).map(([id]) => id));
  }

  onChange(listener: (change: MembershipChange) => void): Cancel {
    return this.#detector.onChange(listener);
  }

  setDraining(isDraining: boolean): void {
    if (this.#own.setDraining(isDraining)) this.#gossip.ownChanged();
  }

  setUnreachable(targets: readonly string[]): void {
    if (this.#own.setUnreachable(targets)) this.#gossip.ownChanged();
  }

  /** Says goodbye on every link, at once. `stop` follows. */
  leave(): void {
    this.#own.leave();
    this.#gossip.ownChanged();
    this.#gossip.flush();
  }

  #tick(): void {
    this.#pauses.tick(this.#processTime.tick());
    const { epoch } = this.#deps.self();
    if (epoch !== this.#ownEpoch) {
      this.#ownEpoch = epoch;
      this.#gossip.ownChanged();
    }
    this.#watch.tick(this.#scale());
    if (this.#plan.tick()) this.#plan.update();
    this.#evaluate();
  }

  /** Lag of the event loop delays others' frames as much as this router's own timers. */
  #scale(): number {
    const lagMs = this.#deps.lagMs();
    return 1 + Math.min(Math.max(lagMs - normalLagMs, 0) / lagUnitMs, maxStretch);
  }

  #endSilent(link: Link): void {
    const entry = this.#table.of(link.peer.origin);
    this.#deps.logger.info("router silent: closing its link", { router: link.peer.origin.router });
    if (entry?.link === link) this.linkDown(link, "silent");
    link.close("silent");
  }

  #endLink(entry: MemberEntry): void {
    const { link } = entry;
    if (!link) return;
    this.#unlink(entry, link);
    link.close("replaced");
  }

  #unlink(entry: MemberEntry, link: Link): void {
    entry.link = undefined;
    entry.isChanged = true;
    this.#watch.remove(link);
    this.#gossip.removeLink(link);
  }

  #takeRecord(record: MemberRecord, link: Link): void {
    const self = this.#deps.self();
    if (record.origin.router !== self.router) {
      this.#merge(record, link);
      return;
    }
    if (record.origin.epoch > self.epoch) {
      this.#deps.logger.warn("peers know a later epoch of this router", { epoch: record.origin.epoch });
    } else if (record.origin.epoch === self.epoch && record.incarnation > this.#own.incarnation) {
      if (this.#own.answer(record.incarnation)) this.#gossip.ownChanged();
    }
  }

  #takeClaim(claim: MemberClaim, link: Link): void {
    const self = this.#deps.self();
    if (claim.origin.router !== self.router) {
      const isNews = this.#table.claim(claim, link.peer.origin.router, this.#processTime.nowMs());
      // A suspicion must reach its subject. A router that finds a member down says so itself, or a rumour would confirm
      // itself.
      if (isNews && claim.state === "suspect") this.#gossip.spread(claim, link);
    } else if (claim.origin.epoch === self.epoch && this.#own.answer(claim.incarnation)) {
      this.#meters.refuted();
      this.#gossip.ownChanged();
    }
  }

  #takeVouch(router: RouterId, epoch: number): void {
    const entry = this.#table.of({ router, epoch });
    if (!entry) return;
    entry.vouchedUntilMs = this.#processTime.nowMs() + this.#limits.silentMs;
    this.#meters.vouched();
  }

  #merge(record: MemberRecord, source: Link | undefined): void {
    const nowMs = this.#processTime.nowMs();
    let outcome = this.#table.merge(record, source, nowMs);
    if (outcome === "superseded") {
      this.#detector.end(this.#table.entries.get(record.origin.router)!);
      outcome = this.#table.merge(record, source, nowMs);
    }
    if (outcome === "full") this.#meters.refused();
    if (outcome === "news") this.#gossip.changed(record.origin.router);
  }

  #evaluate(): void {
    this.#detector.evaluateAll(this.#scale());
  }
}

const states = ["alive", "suspect", "down", "left"] as const satisfies readonly Member["state"][];

/** The metrics of the membership. */
export type MembershipMeters = ReturnType<typeof createMembershipMeters>;

function createMembershipMeters(meter: Meter) {
  const members = meter.gauge("espalier_mesh_members", "Other routers by state, as this router sees them.", ["state"]);
  const series = states.map((state) => ({ state, gauge: members.series(state) }));
  return {
    members(counts: Readonly<Record<Member["state"], number>>): void {
      for (const { state, gauge } of series) gauge.set(counts[state]);
    },
    became: counterBy<Member["state"]>(
      meter,
      "state",
      "espalier_mesh_member_changes_total",
      "Changes of members' state, by new state.",
    ),
    refuted: counterOf(meter, "espalier_mesh_refutations_total", "Suspicions of this router that it refuted."),
    probed: counterOf(meter, "espalier_mesh_indirect_probes_total", "Indirect probes requested for silent peers."),
    vouched: counterOf(
      meter,
      "espalier_mesh_indirect_answers_total",
      "Indirect probes answered by another router for a silent peer.",
    ),
    paused: counterOf(
      meter,
      "espalier_mesh_pauses_total",
      "Pauses of this process over a second: process stopped or event loop blocked.",
    ),
    refused: counterOf(meter, "espalier_mesh_members_refused_total", "Members ignored at the limit."),
  };
}
