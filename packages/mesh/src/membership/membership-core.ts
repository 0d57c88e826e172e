import { asRouterId, type Cancel, type RouterId } from "@espalier/common";
import type { Member } from "@espalier/replication";
import type { DialFailure, Link, LinkEnd } from "../link/link.ts";
import { DialPlan } from "./dial-plan.ts";
import { Gossip } from "./gossip.ts";
import { LinkWatch } from "./link-watch.ts";
import { MemberJudge } from "./member-judge.ts";
import { type MemberClaim, type MemberRecord, unheardRecord } from "./member-record.ts";
import { type MemberEntry, MemberTable, memberOf } from "./member-table.ts";
import type { Membership, MembershipChange, MembershipDeps } from "./membership.ts";
import { decodeMembership, encodeMembership } from "./membership-frames.ts";
import { defaultMembershipLimits, type MembershipLimits } from "./membership-limits.ts";
import { createMembershipMeters, type MembershipMeters } from "./membership-meters.ts";
import { OwnRecord } from "./own-record.ts";
import { createOwnTime, type OwnTime } from "./own-time.ts";
import { PauseReport } from "./pause-report.ts";

/** The most of the time between two ticks that counts, in ticks. */
const maxTicksCounted = 2.5;
/** Lag up to here is normal; above, each `lagUnitMs` stretches judgement by its whole length, up to four times. */
const normalLagMs = 100;
const lagUnitMs = 500;
const maxStretch = 3;

/** Wires records, links, gossip and dialing together. */
export class MembershipCore implements Membership {
  readonly #deps: MembershipDeps;
  readonly #limits: MembershipLimits;
  readonly #ownTime: OwnTime;
  readonly #meters: MembershipMeters;
  readonly #pauses: PauseReport;
  readonly #table: MemberTable;
  readonly #own: OwnRecord;
  readonly #watch: LinkWatch;
  readonly #gossip: Gossip;
  readonly #plan: DialPlan;
  readonly #judge: MemberJudge;
  #cancelTick: Cancel | undefined;
  #ownEpoch: number;

  constructor(deps: MembershipDeps) {
    this.#deps = deps;
    this.#limits = { ...defaultMembershipLimits, ...deps.limits };
    const limits = this.#limits;
    this.#ownTime = createOwnTime(deps.clock, limits.tickMs * maxTicksCounted);
    this.#meters = createMembershipMeters(deps.meter);
    this.#pauses = new PauseReport({ ...deps, paused: () => this.#meters.paused() });
    this.#table = new MemberTable(limits);
    this.#own = new OwnRecord(deps.self, deps.address);
    this.#ownEpoch = deps.self().epoch;
    const shared = { ownTime: this.#ownTime, table: this.#table, limits };
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
    this.#judge = new MemberJudge({
      ...shared,
      gossip: this.#gossip,
      plan: this.#plan,
      meters: this.#meters,
      logger: deps.logger,
      unlink: (entry) => this.#endLink(entry),
    });
  }

  start(): void {
    this.#cancelTick = this.#deps.scheduler.every(this.#limits.tickMs, () => this.#tick());
  }

  stop(): void {
    this.#cancelTick?.();
    this.#cancelTick = undefined;
    this.#gossip.stop();
    this.#plan.stop();
    this.#judge.stop();
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
    this.#deps.logger.debug("a link to a router has ended", { router: link.peer.origin.router, why });
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
      if (entry.record.address === address && !entry.link) entry.refusedAtMs = this.#ownTime.nowMs();
    }
    this.#evaluate();
  }

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

  heard(link: Link): void {
    this.#watch.heard(link);
  }

  members(): readonly Member[] {
    return [...this.#table.entries.values()].filter(({ state }) => state !== undefined).map(memberOf);
  }

  member(router: RouterId): Member | undefined {
    const entry = this.#table.entries.get(router);
    return entry?.state === undefined ? undefined : memberOf(entry);
  }

  addressOf(router: RouterId): string | undefined {
    return this.#table.entries.get(router)?.record.address || undefined;
  }

  isReached(address: string): boolean {
    for (const { record, state } of this.#table.entries.values()) {
      if (state === "alive" && record.address === address) return true;
    }
    return false;
  }

  linksOf(router: RouterId): ReadonlySet<RouterId> {
    if (router !== this.#deps.self().router) {
      return new Set(this.#table.entries.get(router)?.record.links.map(asRouterId));
    }
    return new Set([...this.#table.entries].filter(([, { link }]) => link).map(([id]) => id));
  }

  onChange(listener: (change: MembershipChange) => void): Cancel {
    return this.#judge.onChange(listener);
  }

  setDraining(isDraining: boolean): void {
    if (this.#own.setDraining(isDraining)) this.#gossip.ownChanged();
  }

  setUnreachable(targets: readonly string[]): void {
    if (this.#own.setUnreachable(targets)) this.#gossip.ownChanged();
  }

  leave(): void {
    this.#own.leave();
    this.#gossip.ownChanged();
    this.#gossip.flush();
  }

  #tick(): void {
    this.#pauses.tick(this.#ownTime.tick());
    const { epoch } = this.#deps.self();
    if (epoch !== this.#ownEpoch) {
      this.#ownEpoch = epoch;
      this.#gossip.ownChanged();
    }
    this.#watch.tick(this.#scale());
    if (this.#plan.tick()) this.#plan.update();
    this.#endSurplus();
    this.#evaluate();
  }

  /** Lag of the event loop delays what others send as much as it delays this router's own timers. */
  #scale(): number {
    const lagMs = this.#deps.lagMs();
    return 1 + Math.min(Math.max(lagMs - normalLagMs, 0) / lagUnitMs, maxStretch);
  }

  #endSilent(link: Link): void {
    const entry = this.#table.of(link.peer.origin);
    this.#deps.logger.info("a router is silent: its link is ended", { router: link.peer.origin.router });
    if (entry?.link === link) this.linkDown(link, "silent");
    link.close("silent");
  }

  #endSurplus(): void {
    for (const [router, { link }] of this.#table.entries) {
      if (!link || !this.#plan.isSurplus(router)) continue;
      if (this.#watch.ageMs(link) >= this.#limits.surplusMs) link.close("goodbye");
    }
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
      this.#deps.logger.warn("others know a later life of this router", { epoch: record.origin.epoch });
    } else if (record.origin.epoch === self.epoch && record.incarnation > this.#own.incarnation) {
      if (this.#own.answer(record.incarnation)) this.#gossip.ownChanged();
    }
  }

  #takeClaim(claim: MemberClaim, link: Link): void {
    const self = this.#deps.self();
    if (claim.origin.router !== self.router) {
      const isNews = this.#table.claim(claim, link.peer.origin.router, this.#ownTime.nowMs());
      // Suspicion has to reach whom it is about; who finds somebody dead says so itself, or a rumour would confirm itself.
      if (isNews && claim.state === "suspect") this.#gossip.spread(claim, link);
    } else if (claim.origin.epoch === self.epoch && this.#own.answer(claim.incarnation)) {
      this.#meters.refuted();
      this.#gossip.ownChanged();
    }
  }

  #takeVouch(router: RouterId, epoch: number): void {
    const entry = this.#table.of({ router, epoch });
    if (!entry) return;
    entry.vouchedUntilMs = this.#ownTime.nowMs() + this.#limits.silentMs;
    this.#meters.vouched();
  }

  #merge(record: MemberRecord, source: Link | undefined): void {
    const nowMs = this.#ownTime.nowMs();
    let outcome = this.#table.merge(record, source, nowMs);
    if (outcome === "superseded") {
      this.#judge.end(this.#table.entries.get(record.origin.router)!);
      outcome = this.#table.merge(record, source, nowMs);
    }
    if (outcome === "full") this.#meters.refused();
    if (outcome === "news") this.#gossip.changed(record.origin.router);
  }

  #evaluate(): void {
    this.#judge.judgeAll(this.#scale());
  }
}
