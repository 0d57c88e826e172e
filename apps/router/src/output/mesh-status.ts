import { formatTable, type TableColumn } from "@espalier/workload";

/** The part of `GET /admin/mesh` that is shown to people. */
export interface MeshStatus {
  readonly backend: string;
  readonly router: string;
  readonly epoch: number;
  readonly address: string | null;
  readonly members: readonly MemberStatus[];
  readonly feeds: { readonly owned: number; readonly backup: number; readonly unread: number };
  readonly facts: {
    readonly targets: number;
    readonly blocks: number;
    readonly settled: number;
    readonly digest: string;
  };
  readonly journals: { readonly count: number; readonly bytes: number };
}

interface MemberStatus {
  readonly router: string;
  readonly epoch: number;
  readonly state: string;
  readonly isDraining: boolean;
  readonly address: string | null;
  readonly isLinked: boolean;
  readonly roundTripMs: number | null;
  readonly lagMs: number | null;
  readonly sentBytesPerS: number;
  readonly receivedBytesPerS: number;
  readonly bufferedBytes: number;
}

const columns: readonly TableColumn<MemberStatus>[] = [
  { header: "router", value: (member) => member.router },
  { header: "state", value: (member) => (member.isDraining ? `${member.state}, draining` : member.state) },
  { header: "address", value: (member) => member.address ?? undefined },
  { header: "linked", value: (member) => (member.isLinked ? "yes" : "no") },
  { header: "round trip (ms)", value: (member) => member.roundTripMs ?? undefined, digits: 2 },
  { header: "lag (ms)", value: (member) => member.lagMs ?? undefined, digits: 1 },
  { header: "sent (B/s)", value: (member) => Math.round(member.sentBytesPerS) },
  { header: "received (B/s)", value: (member) => Math.round(member.receivedBytesPerS) },
  { header: "waiting (B)", value: (member) => member.bufferedBytes },
];

/** A router's place among the others, for people. */
export function describeMesh({ backend, router, epoch, address, members, feeds, facts, journals }: MeshStatus): string {
  return [
    `mesh      ${router}, life ${epoch}, by ${backend}${address === null ? "" : ` at ${address}`}`,
    `feeds     ${feeds.owned} read here, ${feeds.backup} followed as backup, ${feeds.unread} read by nobody`,
    `facts     ${facts.blocks} blocks of ${facts.targets} targets, ${facts.settled} settled, digest ${facts.digest}`,
    `journals  ${journals.count}, ${journals.bytes} B`,
    "",
    members.length === 0 ? "no other router" : formatTable(members, columns),
  ].join("\n");
}
