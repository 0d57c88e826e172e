import { asRouterId, type Clock } from "@espalier/core";
import { type Origin, originKey } from "../origin.ts";
import type { Member } from "../replica-ports.ts";
import { decodeLease, type Lease } from "./lease.ts";
import type { CountIncident, RedisKeys, RedisLimits } from "./redis-keys.ts";
import { isWrongType, listOf, pairsOf, type RedisReply, type RedisSession, textOf } from "./redis-session.ts";

/** The place of a journal's copy. */
export interface StoredJournal {
  readonly origin: Origin;
  /** Rises with every copy. */
  readonly version: number;
}

/** What Redis says of all routers at one time. */
export interface DirectoryView {
  /** Leases of the other routers. */
  readonly leases: readonly Lease[];
  /** Stored journals of all origins but the own. */
  readonly journals: readonly StoredJournal[];
  /** The announced copy of the own journal. */
  readonly announced: StoredJournal | undefined;
}

export interface DirectoryOptions {
  readonly origin: () => Origin;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly count: CountIncident;
}

/** Looks up the present routers and the stored journals. */
export class Directory {
  readonly #options: DirectoryOptions;
  /** Routers that had no lease at the latest look. */
  #lapsed: readonly string[] = [];
  /** Routers that had a lease, or a journal. */
  #present: ReadonlySet<string> = new Set();

  constructor(options: DirectoryOptions) {
    this.#options = options;
  }

  async look(session: RedisSession): Promise<DirectoryView> {
    const { origin, keys } = this.#options;
    await this.#ownKey(session, keys.members, "SADD", keys.members, origin().router);
    const [routers, origins] = await Promise.all([
      this.#ownKey(session, keys.members, "SMEMBERS", keys.members),
      this.#ownKey(session, keys.journals, "HGETALL", keys.journals),
    ]);
    const leases = await this.#leases(session, routers);
    const stored = this.#stored(origins);
    const writers = [...stored.journals, ...leases].map((each) => each.origin.router);
    this.#present = new Set([...writers, origin().router]);
    return { leases, ...stored };
  }

  /** Routers that are not looked for any more; they add themselves again if they come back. */
  async forget(session: RedisSession, routers: readonly string[]): Promise<void> {
    if (routers.length > 0) await session.run("SREM", this.#options.keys.members, ...routers);
  }

  /**
   * Removes journals that have expired or are `unwanted`, the names of routers without a lease, which live routers may
   * never have heard of, and the epochs that began longest ago.
   */
  async sweep(session: RedisSession, dead: readonly StoredJournal[], isUnwanted: (origin: Origin) => boolean) {
    const { keys } = this.#options;
    await this.forget(session, this.#lapsed);
    for (const journal of dead) {
      const key = keys.journal(journal);
      if (!isUnwanted(journal.origin) && (await session.run("EXISTS", key)) !== 0) continue;
      await session.run("HDEL", keys.journals, originKey(journal.origin));
      await session.run("DEL", key);
    }
    await this.#sweepEpochs(session);
  }

  /** Whether routers of a version that shared streams live in this cluster: they and this one share nothing. */
  async hasOlder(session: RedisSession): Promise<boolean> {
    const { keys } = this.#options;
    try {
      const routers = listOf(await session.run("SMEMBERS", keys.olderMembers)).flatMap(
        (router) => textOf(router) ?? [],
      );
      const leases = routers.map((router) => keys.olderLease(router));
      return leases.length > 0 && (await session.run("EXISTS", ...leases)) !== 0;
    } catch (error) {
      if (isWrongType(error)) return false;
      throw error;
    }
  }

  /**
   * An epoch is kept so that a router whose clock went back does not begin an old epoch again. Old ones are swept,
   * because the number of names is unbounded.
   */
  async #sweepEpochs(session: RedisSession): Promise<void> {
    const { keys, limits } = this.#options;
    const excess = Number(await session.run("HLEN", keys.epochs)) - limits.maxEpochs;
    if (excess <= 0) return;
    const epochs = pairsOf(await session.run("HGETALL", keys.epochs))
      .map(([router, epoch]) => ({ router, epoch: Number(textOf(epoch)) || 0 }))
      .filter(({ router }) => !this.#present.has(router))
      .sort((one, other) => one.epoch - other.epoch);
    const gone = epochs.slice(0, Math.min(excess, limits.maxEpochs)).map(({ router }) => router);
    if (gone.length > 0) await session.run("HDEL", keys.epochs, ...gone);
  }

  async #leases(session: RedisSession, reply: RedisReply): Promise<Lease[]> {
    const { origin, keys, limits, count } = this.#options;
    const routers = listOf(reply).map((router) => textOf(router) ?? "");
    const others = routers.filter((router) => router !== "" && router !== origin().router).sort();
    if (others.length > limits.maxMembers) count("too-many-members");
    const known = others.slice(0, limits.maxMembers);
    this.#lapsed = [];
    if (known.length === 0) return [];
    const texts = listOf(await session.run("MGET", ...known.map((router) => keys.lease(router))));
    this.#lapsed = known.filter((_, at) => textOf(texts[at]) === undefined);
    const leases: Lease[] = [];
    for (const [at, router] of known.entries()) {
      const text = textOf(texts[at]);
      if (text === undefined) continue;
      try {
        leases.push(decodeLease(router, text));
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        count("lease-invalid");
      }
    }
    return leases;
  }

  #stored(reply: RedisReply): Pick<DirectoryView, "journals" | "announced"> {
    const own = originKey(this.#options.origin());
    const journals: StoredJournal[] = [];
    let announced: StoredJournal | undefined;
    for (const [key, value] of pairsOf(reply)) {
      const stored = parseStored(key, textOf(value) ?? "");
      if (!stored) this.#options.count("entry-invalid");
      else if (key === own) announced = stored;
      else journals.push(stored);
    }
    return { journals, announced };
  }

  /** Runs a command on a shared key, and removes a value that another program put there. */
  async #ownKey(session: RedisSession, key: string, ...command: string[]): Promise<RedisReply> {
    try {
      return await session.run(...command);
    } catch (error) {
      if (!isWrongType(error)) throw error;
      this.#options.count("key-of-other-type");
      await session.run("DEL", key);
      return null;
    }
  }
}

function parseStored(key: string, value: string): StoredJournal | undefined {
  const match = /^(.{1,512})@(\d{1,16})$/s.exec(key);
  const [epoch, version] = [Number(match?.[2]), Number(value)];
  if (!match || !Number.isSafeInteger(epoch) || !Number.isSafeInteger(version)) return undefined;
  return { origin: { router: asRouterId(match[1]!), epoch }, version };
}

interface Entry {
  lease: Lease;
  state: Member["state"];
  /** When it was last heard to be alive. */
  heardMs: number;
  /** When its lease was first seen missing; undefined while it is there. */
  missingSinceMs: number | undefined;
}

export interface MemberTableOptions {
  readonly clock: Clock;
  readonly limits: RedisLimits;
  readonly onChange: () => void;
  /** What this epoch had in flight does not count any more. */
  readonly onGone: (origin: Origin) => void;
}

/** What the leases seen so far say about the other routers. */
export class MemberTable {
  readonly #options: MemberTableOptions;
  readonly #entries = new Map<string, Entry>();
  #forgotten: string[] = [];
  #isChanged = false;

  constructor(options: MemberTableOptions) {
    this.#options = options;
  }

  /**
   * Evaluates one look at all leases but the own.
   *
   * @param isGrace missing leases mean nothing, because no router could renew one
   */
  observe(leases: readonly Lease[], isGrace: boolean): void {
    this.#isChanged = false;
    const seen = new Set<string>();
    for (const lease of leases) {
      seen.add(lease.origin.router);
      this.#see(lease);
    }
    for (const [router, entry] of [...this.#entries]) {
      if (seen.has(router) && entry.state !== "left") continue;
      if (entry.lease.beat === 0 && this.#options.clock.nowMs() - entry.heardMs < this.#options.limits.renewMs)
        continue;
      if (isGrace && entry.state !== "left") entry.missingSinceMs = undefined;
      else this.#miss(router, entry);
    }
    if (this.#isChanged) this.#options.onChange();
  }

  /** It sent a greeting before its lease was seen. A look in progress may not know of it yet. */
  greeted(origin: Origin): void {
    this.#isChanged = false;
    const known = this.#entries.get(origin.router);
    const isSameEpoch = known?.lease.origin.epoch === origin.epoch;
    const unsaid = { beat: 0, isReady: false, isDraining: false, unreachable: [], region: "" };
    this.#see({ ...(isSameEpoch ? known.lease : unsaid), origin });
    if (this.#isChanged) this.#options.onChange();
  }

  /** It said goodbye. */
  left({ router, epoch }: Origin): void {
    const entry = this.#entries.get(router);
    if (!entry || entry.lease.origin.epoch !== epoch || entry.state === "left") return;
    entry.state = "left";
    entry.missingSinceMs = this.#options.clock.nowMs();
    this.#options.onGone(entry.lease.origin);
    this.#options.onChange();
  }

  /** @param isLinked whether Redis can be reached, and through it the living */
  list(isLinked: boolean): readonly Member[] {
    return [...this.#entries.values()].map(({ lease, state }) => ({
      origin: lease.origin,
      state,
      isDraining: lease.isDraining,
      isLinked: isLinked && state === "alive",
      unreachable: lease.unreachable,
      region: lease.region,
    }));
  }

  member(router: string): Pick<Member, "origin" | "state"> | undefined {
    const entry = this.#entries.get(router);
    return entry && { origin: entry.lease.origin, state: entry.state };
  }

  /** Routers forgotten since the last call. */
  takeForgotten(): readonly string[] {
    const forgotten = this.#forgotten;
    this.#forgotten = [];
    return forgotten;
  }

  #see(lease: Lease): void {
    const { limits, onGone } = this.#options;
    const entry = this.#entries.get(lease.origin.router);
    if (!entry) {
      if (this.#entries.size >= limits.maxMembers) return;
      const heardMs = this.#options.clock.nowMs();
      this.#entries.set(lease.origin.router, { lease, state: "alive", heardMs, missingSinceMs: undefined });
      this.#isChanged = true;
      return;
    }
    const isSameEpoch = entry.lease.origin.epoch === lease.origin.epoch;
    if (lease.origin.epoch < entry.lease.origin.epoch || (isSameEpoch && entry.state === "left")) return;
    if (!isSameEpoch) onGone(entry.lease.origin);
    this.#isChanged ||= !isSameEpoch || entry.state !== "alive" || !saysTheSame(entry.lease, lease);
    entry.lease = lease;
    entry.state = "alive";
    entry.heardMs = this.#options.clock.nowMs();
    entry.missingSinceMs = undefined;
  }

  #miss(router: string, entry: Entry): void {
    const { clock, limits, onGone } = this.#options;
    entry.missingSinceMs ??= clock.nowMs();
    const missingMs = clock.nowMs() - entry.missingSinceMs;
    if (entry.state === "alive") {
      entry.state = "suspect";
      this.#isChanged = true;
    }
    if (entry.state === "suspect" && missingMs >= limits.downAfterLapseMs) {
      entry.state = "down";
      this.#isChanged = true;
      onGone(entry.lease.origin);
    }
    if (missingMs < limits.forgetAfterLapseMs) return;
    this.#entries.delete(router);
    this.#forgotten.push(router);
    this.#isChanged = true;
  }
}

function saysTheSame(before: Lease, after: Lease): boolean {
  return (
    before.isDraining === after.isDraining &&
    before.region === after.region &&
    before.unreachable.length === after.unreachable.length &&
    before.unreachable.every((target, at) => target === after.unreachable[at])
  );
}
