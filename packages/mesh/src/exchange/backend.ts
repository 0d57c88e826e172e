import type { Cancel, Clock, Startable } from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import type { Link } from "../link/link.ts";
import type { RefusedPeer } from "../link/links.ts";
import type { Member } from "../replica-ports.ts";

/** Carries a replica's journals, gauges and snapshots to the other replicas and back, over sockets or Redis. */
export interface Backend extends Startable {
  readonly kind: "mesh" | "redis";
  members(): readonly Member[];
  onMembers(listener: () => void): Cancel;
  /** What the replica waits for and should not be used without; empty once it has all that its peers have. */
  readonly waitingFor: readonly string[];
  setDraining(isDraining: boolean): void;
  /** Says which targets' event sockets this router cannot reach. */
  setUnreachable(targets: readonly string[]): void;
  /** Says goodbye, so that others take over at once. `stop` follows. */
  leave(): Promise<void>;
  /** Bytes that wait to be sent to other routers, in all. */
  readonly bufferedBytes: number;
  /** Plain JSON for operators. */
  describe(): BackendDescription;
}

export interface BackendDescription {
  readonly kind: "mesh" | "redis";
  /** Where peers can reach this router; null for Redis. */
  readonly address: string | null;
  readonly members: readonly MemberDescription[];
  /** Routers with which no link was made, and why. */
  readonly refused: readonly RefusedPeer[];
  readonly waitingFor: readonly string[];
}

export const memberDescription = closed({
  router: Type.String(),
  epoch: Type.Integer(),
  state: Type.Unsafe<Member["state"]>(Type.String()),
  isDraining: Type.Boolean(),
  region: nullable(Type.String(), { description: "Advertised region." }),
  address: nullable(Type.String()),
  isLinked: Type.Boolean(),
  roundTripMs: nullable(Type.Number()),
  /** How long its latest changes took to arrive, by its own clock and this router's; null where unknown. */
  lagMs: nullable(Type.Number()),
  sentBytes: Type.Number(),
  receivedBytes: Type.Number(),
  sentBytesPerS: Type.Number(),
  receivedBytesPerS: Type.Number(),
  bufferedBytes: Type.Number(),
});

export type MemberDescription = Described<typeof memberDescription>;

export interface ReadinessOptions {
  readonly clock: Clock;
  /** How long peers may take to be found, in milliseconds. The wait for what they have ends after as long again. */
  readonly graceMs: number;
  /** Whether all known addresses were tried and all handshakes answered. */
  hasTriedAll(): boolean;
  /** What to wait for once peers are known, by name. */
  readonly conditions: Readonly<Record<string, () => boolean>>;
}

/**
 * Says what a router that has just started waits for. Once it is ready, it stays ready. A link that breaks again and
 * again does not keep it from work: the wait has an end that no peer can put off.
 */
export class Readiness {
  readonly #options: ReadinessOptions;
  /** Undefined before the start, when all the time is still left. */
  #startMs: number | undefined;
  #isReady = false;

  constructor(options: ReadinessOptions) {
    this.#options = options;
  }

  start(): void {
    this.#startMs = this.#options.clock.nowMs();
  }

  /** Whether more peers may still be found. */
  get isLooking(): boolean {
    return this.#elapsedMs < this.#options.graceMs && !this.#options.hasTriedAll();
  }

  /** Whether a router that has state, and cannot be reached just now, is worth waiting for. */
  get mayWait(): boolean {
    return !this.#isReady && this.#elapsedMs < 2 * this.#options.graceMs;
  }

  get waitingFor(): readonly string[] {
    if (!this.mayWait) return this.#ready();
    if (this.isLooking) return ["peers"];
    const waiting = Object.entries(this.#options.conditions).filter(([, isMet]) => !isMet());
    return waiting.length === 0 ? this.#ready() : waiting.map(([name]) => name);
  }

  get #elapsedMs(): number {
    return this.#startMs === undefined ? 0 : this.#options.clock.nowMs() - this.#startMs;
  }

  #ready(): readonly string[] {
    this.#isReady = true;
    return [];
  }
}

export interface MemberFacts {
  readonly member: Member;
  readonly address: string | undefined;
  readonly link: Link | undefined;
  readonly rates: ByteRates | undefined;
  readonly lagMs: number | undefined;
}

/** A member as plain JSON for operators. */
export function describeMember({ member, address, link, rates, lagMs }: MemberFacts): MemberDescription {
  const roundTripMs = link?.roundTripMs ?? Number.NaN;
  return {
    router: member.origin.router,
    epoch: member.origin.epoch,
    state: member.state,
    isDraining: member.isDraining,
    region: member.region || null,
    address: address ?? null,
    isLinked: link !== undefined,
    roundTripMs: Number.isNaN(roundTripMs) ? null : roundTripMs,
    lagMs: lagMs ?? null,
    sentBytes: link?.stats.sentBytes ?? 0,
    receivedBytes: link?.stats.receivedBytes ?? 0,
    sentBytesPerS: Math.round(rates?.sentBytesPerS ?? 0),
    receivedBytesPerS: Math.round(rates?.receivedBytesPerS ?? 0),
    bufferedBytes: link?.bufferedBytes ?? 0,
  };
}

interface Sample {
  readonly sentBytes: number;
  readonly receivedBytes: number;
}

export interface ByteRates {
  readonly sentBytesPerS: number;
  readonly receivedBytesPerS: number;
}

const noRates: ByteRates = { sentBytesPerS: 0, receivedBytesPerS: 0 };

/** Bytes per second of links, between the two latest samples. */
export class PeerRates {
  readonly #clock: Clock;
  #samples = new Map<Link, Sample>();
  #rates = new Map<Link, ByteRates>();
  #sampledAtMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sampledAtMs = clock.nowMs();
  }

  sample(links: readonly Link[]): void {
    const nowMs = this.#clock.nowMs();
    const seconds = (nowMs - this.#sampledAtMs) / 1000;
    const samples = new Map<Link, Sample>();
    const rates = new Map<Link, ByteRates>();
    for (const link of links) {
      const { sentBytes, receivedBytes } = link.stats;
      const before = this.#samples.get(link) ?? { sentBytes: 0, receivedBytes: 0 };
      samples.set(link, { sentBytes, receivedBytes });
      if (seconds <= 0) continue;
      rates.set(link, {
        sentBytesPerS: (sentBytes - before.sentBytes) / seconds,
        receivedBytesPerS: (receivedBytes - before.receivedBytes) / seconds,
      });
    }
    this.#samples = samples;
    this.#rates = rates;
    this.#sampledAtMs = nowMs;
  }

  of(link: Link): ByteRates {
    return this.#rates.get(link) ?? noRates;
  }
}
