import { type Cancel, hashText, type RouterId, type Scheduler } from "@espalier/core";
import type { Link } from "../link/link.ts";
import { type Origin, originKey } from "../origin.ts";
import {
  isWithinReach,
  type MemberClaim,
  type MemberEntry,
  type MemberRecord,
  type MemberTable,
} from "./member-table.ts";
import { encodeMembership, fitUnreachable, frameBounds, regionCapability } from "./membership-frames.ts";
import type { ProcessTime } from "./process-time.ts";

/** Changes within so many milliseconds go out in one frame. */
const coalesceMs = 10;
/** A peer whose table differs gets the whole one, the first time at once, then at growing intervals. */
const firstSyncMs = 1_000;
/** Longest interval between two full tables sent to a peer. */
const maxSyncMs = 16_000;

interface SyncState {
  notBeforeMs: number;
  delayMs: number;
}

export interface GossipDeps {
  readonly scheduler: Scheduler;
  readonly processTime: ProcessTime;
  readonly table: MemberTable;
  readonly own: OwnRecord;
}

/**
 * Spreads records and claims. A record goes to every peer that its author has no link to. Pings carry a digest of the
 * table, and peers whose digests differ exchange what they have, which repairs any loss.
 */
export class Gossip {
  readonly #deps: GossipDeps;
  readonly #links = new Map<Link, SyncState>();
  readonly #news = new Set<RouterId>();
  #ownRecord: MemberRecord;
  #isOwnNews = false;
  #cancelFlush: Cancel | undefined;

  constructor(deps: GossipDeps) {
    this.#deps = deps;
    this.#ownRecord = deps.own.next([]);
  }

  addLink(link: Link): void {
    this.#links.set(link, { notBeforeMs: this.#deps.processTime.nowMs() + firstSyncMs, delayMs: firstSyncMs });
    this.ownChanged();
    this.#sendAll(link);
  }

  removeLink(link: Link): void {
    if (this.#links.delete(link)) this.ownChanged();
  }

  /** This router has something new to say of itself. */
  ownChanged(): void {
    this.#isOwnNews = true;
    this.#flushSoon();
  }

  changed(router: RouterId): void {
    this.#news.add(router);
    this.#flushSoon();
  }

  /** Passes a claim on at once: its subject needs time to refute it. */
  spread(claim: MemberClaim, source: Link | undefined): void {
    const [frame] = encodeMembership({ kind: "claims", claims: [claim] });
    for (const link of this.#links.keys()) {
      if (link !== source) link.send("membership", frame!);
    }
  }

  /** Equal on two routers that know the same of the same members. */
  digest(): number {
    let sum = digestOf(this.#ownRecord);
    for (const { record, state } of this.#deps.table.entries.values()) {
      if (state === "alive") sum = (sum + digestOf(record)) >>> 0;
    }
    return sum;
  }

  /** A peer's ping had its digest. */
  compare(link: Link, digest: number): void {
    const sync = this.#links.get(link);
    if (!sync || this.#cancelFlush) return;
    if (digest === this.digest()) {
      sync.delayMs = firstSyncMs;
      return;
    }
    const nowMs = this.#deps.processTime.nowMs();
    if (nowMs < sync.notBeforeMs) return;
    sync.notBeforeMs = nowMs + sync.delayMs;
    sync.delayMs = Math.min(sync.delayMs * 2, maxSyncMs);
    this.#sendAll(link);
  }

  /** Sends the pending changes now. */
  flush(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    if (this.#isOwnNews) {
      this.#isOwnNews = false;
      this.#ownRecord = this.#deps.own.next([...this.#links.keys()].map((link) => link.peer.origin.router));
      this.#send(this.#links.keys(), [this.#ownRecord]);
    }
    const news: MemberEntry[] = [];
    for (const router of this.#news) {
      const entry = this.#deps.table.entries.get(router);
      if (entry?.state !== undefined && entry.record.incarnation > 0) news.push(entry);
    }
    this.#news.clear();
    for (const link of this.#links.keys()) {
      const lacking = news.filter((entry) => this.#lacks(link, entry)).map(({ record }) => record);
      this.#send([link], lacking);
    }
  }

  stop(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    this.#links.clear();
  }

  /** Whether a peer neither gets a record from its author nor gave it to this router. */
  #lacks(link: Link, { record, links, source }: MemberEntry): boolean {
    const { router: peer } = link.peer.origin;
    const author = record.origin.router;
    if (link === source || peer === author) return false;
    return !(links.has(peer) && this.#deps.table.entries.get(peer)?.links.has(author));
  }

  #sendAll(link: Link): void {
    const records = [this.#ownRecord];
    for (const { record, state } of this.#deps.table.entries.values()) {
      if (state !== "alive" && state !== "left") continue;
      if (record.incarnation > 0 && record.origin.router !== link.peer.origin.router) records.push(record);
    }
    this.#send([link], records);
  }

  #send(links: Iterable<Link>, records: readonly MemberRecord[]): void {
    if (records.length === 0) return;
    const whole = encodeMembership({ kind: "records", records });
    const hasRegions = records.some(({ region }) => region !== undefined);
    for (const link of links) {
      // A router of an earlier version reads no record with a region.
      const isRead = !hasRegions || link.peer.capabilities?.includes(regionCapability);
      const frames = isRead ? whole : encodeMembership({ kind: "records", records: records.map(unplaced) });
      for (const frame of frames) link.send("membership", frame);
    }
  }

  #flushSoon(): void {
    this.#cancelFlush ??= this.#deps.scheduler.after(coalesceMs, () => this.flush());
  }
}

const unplaced = (record: MemberRecord): MemberRecord => ({ ...record, region: undefined });

function digestOf({ origin, incarnation }: MemberRecord): number {
  return hashText(originKey(origin), incarnation);
}

/** What this router says of itself. */
export class OwnRecord {
  readonly #self: () => Origin;
  readonly #address: () => string | undefined;
  readonly #region: string | undefined;
  #incarnation = 0;
  #hasLeft = false;
  #isDraining = false;
  #unreachable: readonly string[] = [];

  constructor(self: () => Origin, address: () => string | undefined, region?: string) {
    this.#self = self;
    this.#address = address;
    this.#region = region;
  }

  get incarnation(): number {
    return this.#incarnation;
  }

  get hasLeft(): boolean {
    return this.#hasLeft;
  }

  leave(): void {
    this.#hasLeft = true;
  }

  /** @returns whether that is news */
  setDraining(isDraining: boolean): boolean {
    if (this.#isDraining === isDraining) return false;
    this.#isDraining = isDraining;
    return true;
  }

  /** Takes as many as a record holds. @returns whether that is news */
  setUnreachable(targets: readonly string[]): boolean {
    const fitting = fitUnreachable(targets);
    const before = this.#unreachable;
    if (fitting.length === before.length && fitting.every((target, index) => target === before[index])) return false;
    this.#unreachable = fitting;
    return true;
  }

  /**
   * Others have a claim about this router that its next incarnation, later than this one, must answer.
   *
   * @returns false when there is nothing to answer: it was answered, or no router accepts a number so far ahead
   */
  answer(incarnation: number): boolean {
    if (incarnation < this.#incarnation || !isWithinReach(this.#incarnation, incarnation)) return false;
    this.#incarnation = incarnation;
    return true;
  }

  /** The record again, under a higher incarnation. */
  next(links: Iterable<RouterId>): MemberRecord {
    this.#incarnation += 1;
    return {
      origin: this.#self(),
      incarnation: this.#incarnation,
      hasLeft: this.#hasLeft,
      isDraining: this.#isDraining,
      address: this.#address() ?? "",
      unreachable: this.#unreachable,
      links: [...links].sort().slice(0, frameBounds.links),
      region: this.#region,
    };
  }
}
