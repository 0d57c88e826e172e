import type { Clock } from "@espalier/common";
import type { Member } from "@espalier/replication";
import type { Link } from "../link/link.ts";
import type { MemberDescription } from "./backend.ts";

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
