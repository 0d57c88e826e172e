import type { Meter } from "@espalier/common";
import type { Member } from "@espalier/replication";

const states = ["alive", "suspect", "down", "left"] as const satisfies readonly Member["state"][];

/** The metrics of the membership. */
export interface MembershipMeters {
  members(counts: Readonly<Record<Member["state"], number>>): void;
  became(state: Member["state"]): void;
  refuted(): void;
  probed(): void;
  vouched(): void;
  paused(): void;
  refused(): void;
}

export function createMembershipMeters(meter: Meter): MembershipMeters {
  const members = meter.gauge({
    name: "espalier_mesh_members",
    help: "Other routers by state, as this router sees them.",
    labels: ["state"],
  });
  const changes = meter.counter({
    name: "espalier_mesh_member_changes_total",
    help: "Members that came into a state.",
    labels: ["state"],
  });
  const refutations = meter.counter({
    name: "espalier_mesh_refutations_total",
    help: "Times that this router contradicted others who suspected it.",
  });
  const probes = meter.counter({
    name: "espalier_mesh_indirect_probes_total",
    help: "Silent peers that others were asked about.",
  });
  const vouches = meter.counter({
    name: "espalier_mesh_indirect_answers_total",
    help: "Answers of others who heard a peer that was asked about.",
  });
  const pauses = meter.counter({
    name: "espalier_mesh_pauses_total",
    help: "Times that this process was stopped, or its event loop hung, for over a second.",
  });
  const refused = meter.counter({
    name: "espalier_mesh_members_refused_total",
    help: "Members not taken up because there are too many.",
  });
  const memberSeries = states.map((state) => ({ state, series: members.series(state) }));
  return {
    members(counts) {
      for (const { state, series } of memberSeries) series.set(counts[state]);
    },
    became: (state) => changes.series(state).add(),
    refuted: () => refutations.series().add(),
    probed: () => probes.series().add(),
    vouched: () => vouches.series().add(),
    paused: () => pauses.series().add(),
    refused: () => refused.series().add(),
  };
}
