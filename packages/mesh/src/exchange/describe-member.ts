import type { Member } from "@espalier/replication";
import type { Link } from "../link/link.ts";
import type { MemberDescription } from "./backend.ts";
import type { ByteRates } from "./peer-rates.ts";

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
