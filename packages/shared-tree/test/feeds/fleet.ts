import { asRouterId, createSeededRandom, type Random, type RouterId, silentLogger, silentMeter } from "@espalier/core";
import type { Member } from "@espalier/mesh";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import type { FeedRole } from "../../src/feeds/decide-role.ts";
import type { FeedClaim, FeedQuality, PostedClaim } from "../../src/feeds/feed-claim.ts";
import { FeedTable } from "../../src/feeds/feed-table.ts";
import { Ownership } from "../../src/feeds/ownership.ts";
import { originOf } from "../documents/journal-fixtures.ts";

/** A table of feeds whose claims a test gives, whatever is posted. */
export function feedsWith(claims: (target: string) => readonly PostedClaim[]): FeedTable {
  class GivenClaims extends FeedTable {
    override claimsOf(target: string): readonly PostedClaim[] {
      return claims(target);
    }
  }
  const { clock } = createVirtualTime();
  return new GivenClaims({
    ...{ fold: { state: () => undefined }, slots: { keyOf: () => undefined } },
    ...{ self: () => originOf("self"), clock, meter: silentMeter },
  });
}

export interface FleetRouter {
  readonly name: string;
  readonly epoch: number;
  readonly ownership: Ownership;
  /** Claims that have reached it: by target, then by author. */
  readonly claims: Map<string, Map<string, PostedClaim>>;
  readonly roles: Map<string, FeedRole>;
  /** What it sees of the others. */
  members: Member[];
  isRunning: boolean;
  isDraining: boolean;
  unreachable: string[];
  readonly region: string | undefined;
}

/** Several routers that decide on their own, and hear of each other's claims and states later. */
export class Fleet {
  readonly time: VirtualTime = createVirtualTime();
  readonly random: Random;
  readonly routers = new Map<string, FleetRouter>();
  /** Roles taken so far. */
  takings = 0;
  /** What reading a target for a while is worth. */
  qualityOf: (target: string, router: string) => FeedQuality = () => "complete";
  readonly #maxDelayMs: number;
  #epoch = 0;
  /** Numbers all claims in the order in which they are made; their `state` carries it. */
  #versions = 0;

  constructor(seed: number, maxDelayMs = 150) {
    this.random = createSeededRandom(seed);
    this.#maxDelayMs = maxDelayMs;
  }

  /** @param region of the router @param regionOf that of each target */
  add(
    name: string,
    targets: readonly string[],
    region?: string,
    regionOf: (target: string) => string | undefined = () => undefined,
  ): FleetRouter {
    this.#epoch += 1;
    const epoch = this.#epoch;
    const self = { router: asRouterId(name), epoch };
    const router: FleetRouter = {
      name,
      epoch,
      claims: new Map(),
      roles: new Map(),
      members: [],
      isRunning: true,
      isDraining: false,
      unreachable: [],
      region,
      ownership: new Ownership({
        self: () => self,
        region,
        clock: this.time.clock,
        scheduler: this.time.scheduler,
        members: () => router.members,
        feeds: feedsWith((target) => [...(router.claims.get(target)?.values() ?? [])]),
        onRole: (target, role) => this.#take(router, target, role),
        meter: silentMeter,
        logger: silentLogger,
      }),
    };
    this.#adoptClaims(router);
    this.routers.set(name, router);
    router.members = this.#membersFor(router);
    for (const target of targets) router.ownership.addTarget(target, regionOf(target));
    router.ownership.start();
    this.tellMembers();
    // What was under way to others when it joined reaches it by the comparison of journals.
    this.time.scheduler.after(2 * this.#maxDelayMs, () => this.#adoptClaims(router));
    return router;
  }

  kill(name: string): void {
    const router = this.routers.get(name)!;
    router.isRunning = false;
    router.ownership.stop();
    this.routers.delete(name);
    this.tellMembers();
  }

  setDraining(name: string, isDraining: boolean): void {
    const router = this.routers.get(name)!;
    router.isDraining = isDraining;
    router.ownership.setDraining(isDraining);
    this.tellMembers();
  }

  setUnreachable(name: string, targets: string[]): void {
    const router = this.routers.get(name)!;
    router.unreachable = targets;
    router.ownership.setUnreachable(targets);
    this.tellMembers();
  }

  /** Who has a role for a target. */
  who(target: string, role: FeedRole): string[] {
    return [...this.routers.values()]
      .filter(({ ownership }) => ownership.roleOf(target) === role)
      .map(({ name }) => name)
      .sort();
  }

  ownerSeenBy(name: string, target: string): RouterId | undefined {
    return this.routers.get(name)!.ownership.ownerOf(target);
  }

  /** Every router sees the others as they are now, each after a while of its own. */
  tellMembers(): void {
    for (const router of this.routers.values()) {
      this.#later(() => {
        if (!router.isRunning) return;
        router.members = this.#membersFor(router);
        router.ownership.membersChanged();
      });
    }
  }

  claim(router: FleetRouter, target: string, quality: FeedQuality): void {
    const known = [...(router.claims.get(target)?.values() ?? [])].map(({ claim }) => claim.stamp);
    this.#publish(router, {
      target,
      stamp: Math.max(0, ...known) + 1,
      quality,
      state: "live",
      reason: "",
      unusable: null,
    });
  }

  #membersFor(router: FleetRouter): Member[] {
    return [...this.routers.values()]
      .filter((other) => other !== router)
      .map(({ name, epoch, isDraining, unreachable, region }) => {
        const origin = { router: asRouterId(name), epoch };
        return { origin, state: "alive", isDraining, isLinked: true, unreachable, region };
      });
  }

  #take(router: FleetRouter, target: string, role: FeedRole): void {
    const before = router.roles.get(target) ?? "none";
    router.roles.set(target, role);
    this.takings += 1;
    if (role === "none") {
      router.ownership.setQuality(target, "none");
      return;
    }
    if (role === "owner" && !router.unreachable.includes(target)) {
      this.claim(router, target, before === "backup" ? this.qualityOf(target, router.name) : "partial");
    }
    this.time.scheduler.after(100 + this.random.integer(400), () => {
      const now = router.roles.get(target);
      if (!router.isRunning || now === "none" || router.unreachable.includes(target)) return;
      const quality = this.qualityOf(target, router.name);
      const own = router.claims.get(target)?.get(router.name);
      if (now === "owner" && own && own.claim.quality !== quality) this.#publish(router, { ...own.claim, quality });
      router.ownership.setQuality(target, quality);
    });
  }

  /** A journal is read in order: what arrives is what its author says by then. */
  #publish(author: FleetRouter, claim: FeedClaim): void {
    this.#versions += 1;
    const origin = { router: asRouterId(author.name), epoch: author.epoch };
    this.#hear(author, { origin, claim: { ...claim, state: `${this.#versions}` } });
    for (const router of this.routers.values()) {
      if (router === author) continue;
      this.#later(() => this.#hear(router, author.claims.get(claim.target)!.get(author.name)!));
    }
  }

  #adoptClaims(router: FleetRouter): void {
    for (const other of this.routers.values()) {
      for (const byAuthor of other.claims.values()) for (const said of byAuthor.values()) this.#hear(router, said);
    }
  }

  #hear(router: FleetRouter, said: PostedClaim): void {
    if (!router.isRunning) return;
    const byAuthor = router.claims.get(said.claim.target) ?? new Map<string, PostedClaim>();
    router.claims.set(said.claim.target, byAuthor);
    const before = byAuthor.get(said.origin.router);
    if (before && Number(before.claim.state) >= Number(said.claim.state)) return;
    byAuthor.set(said.origin.router, said);
    router.ownership.claimsChanged(said.claim.target);
  }

  #later(task: () => void): void {
    this.time.scheduler.after(1 + this.random.float() * this.#maxDelayMs, task);
  }
}

export function targetsOf(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `engine-${index}/0`);
}
