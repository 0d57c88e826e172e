import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import { type Backend, memberDescription, refusedPeer } from "@espalier/mesh";
import type { Replica } from "@espalier/shared-tree";
import type { CompiledConfig } from "../config/index.ts";
import { feedQuality } from "../prefix/engine-feeds.ts";
import { type FleetWatch, lostRouter, releaseDescription } from "./fleet-watch.ts";

const meshMember = closed(
  { ...memberDescription.properties, ...releaseDescription.properties },
  { title: "MeshMember" },
);

/** This router's view of the mesh, as plain JSON for `GET /admin/mesh` and `espalier status`. */
export const meshDescription = closed(
  {
    backend: Type.Enum(["peers", "redis"]),
    cluster: Type.String(),
    events: Type.String({ description: "`mesh.events`." }),
    router: Type.String(),
    epoch: Type.Integer({ description: "Epoch of this router process." }),
    region: nullable(Type.String(), { description: "`mesh.region`." }),
    address: nullable(Type.String()),
    waitingFor: Type.Array(Type.String()),
    members: Type.Array(meshMember),
    lost: Type.Array(lostRouter, {
      description: "Former members that failed in the last 30 minutes.",
    }),
    refused: Type.Array(refusedPeer, {
      description: "Refused links of the last 30 minutes, at most 32, latest first.",
    }),
    droppedEstimates: Type.Array(closed({ kind: Type.String(), count: Type.Integer() }), {
      description: "Shared estimates dropped at the limit since the router's start, by kind.",
    }),
    droppedEntries: Type.Array(closed({ kind: Type.Enum(["engine", "drain"]), count: Type.Integer() }), {
      description: "Operator engines and drain flags dropped from the registry at its limit.",
    }),
    load: Type.Array(
      closed({
        router: Type.String(),
        epoch: Type.Integer(),
        ageMs: Type.Number(),
        leaseRemainingMs: Type.Number(),
        targets: Type.Integer(),
        inFlight: Type.Integer(),
      }),
    ),
    feeds: closed({ owned: Type.Integer(), backup: Type.Integer(), unowned: Type.Integer() }),
    facts: closed({
      targets: Type.Integer(),
      blocks: Type.Integer(),
      settled: Type.Integer(),
      digest: Type.String(),
      waitingBytes: Type.Integer(),
    }),
    journals: closed({
      count: Type.Integer(),
      bytes: Type.Integer(),
      own: Type.Object({}, { description: "Statistics of the journals." }),
    }),
    targets: Type.Array(
      closed({
        target: Type.String(),
        owner: nullable(Type.String()),
        quality: feedQuality,
        epoch: nullable(Type.String(), { description: "Epoch of the engine." }),
        sequence: nullable(Type.Integer()),
        isComplete: Type.Boolean(),
        progress: Type.Enum(["current", "waiting", "open", "loading"]),
        blocks: nullable(Type.Integer()),
        digest: nullable(Type.String()),
      }),
      { description: "Targets with cache state; at most 1,024." },
    ),
  },
  { title: "Mesh" },
);

export type MeshDescription = Described<typeof meshDescription>;

export const meshOff = closed({ backend: Type.Literal("off") }, { title: "MeshOff" });

interface MeshDescriptionParts {
  readonly config: Pick<CompiledConfig, "mesh">;
  readonly replica: Replica;
  readonly backend: Backend;
  readonly watch: Pick<FleetWatch, "releaseOf" | "lost">;
}

/** Most targets listed individually. */
const listedTargets = 1_024;

export function describeMesh(parts: MeshDescriptionParts): MeshDescription {
  const { config, replica, backend, watch } = parts;
  const { origin, journals, foldBytes, targets, load } = replica.describe();
  const described = backend.describe();
  const statements = targets.map(({ target }) => replica.fold.statement(target));
  const feeds = [...replica.feeds.all()].filter(({ make }) => make !== undefined);
  return {
    backend: described.kind === "mesh" ? "peers" : described.kind,
    cluster: config.mesh.cluster,
    events: config.mesh.events,
    router: origin.router,
    epoch: origin.epoch,
    region: config.mesh.region ?? null,
    address: described.address,
    waitingFor: described.waitingFor,
    members: described.members.map((member) => ({ ...member, ...watch.releaseOf(member.router) })),
    lost: watch.lost().filter(({ router }) => described.members.every((member) => member.router !== router)),
    refused: described.refused,
    droppedEstimates: replica.notes.refused(),
    droppedEntries: replica.registry.describe().dropped,
    // Load of a router whose lease has expired does not count.
    load: load.filter(({ leaseRemainingMs }) => leaseRemainingMs > 0),
    feeds: {
      owned: feeds.filter(({ role }) => role === "owner").length,
      backup: feeds.filter(({ role }) => role === "backup").length,
      unowned: feeds.filter(({ nomination }) => nomination?.owner === undefined).length,
    },
    facts: {
      targets: targets.length,
      blocks: statements.reduce((sum, statement) => sum + (statement?.blocks ?? 0), 0),
      settled: statements.filter((statement) => statement !== undefined).length,
      digest: digestOf(statements.map((statement) => statement?.digest ?? [0, 0])),
      waitingBytes: foldBytes,
    },
    journals: { count: journals.documents, bytes: journals.byteLength, own: journals },
    targets: targets.slice(0, listedTargets).map(({ target, epoch, last, isComplete, progress }, at) => ({
      target,
      owner: replica.feeds.claimOf(target)?.origin.router ?? null,
      quality: replica.feeds.qualityOf(target),
      epoch: epoch ? `${epoch.sequence}.${epoch.timestampUs}` : null,
      sequence: last?.sequence ?? null,
      isComplete,
      progress,
      blocks: statements[at]?.blocks ?? null,
      digest: statements[at] ? digestOf([statements[at].digest]) : null,
    })),
  };
}

/** Sums of digests, as sixteen hexadecimal digits: equal for equal facts, in any order. */
function digestOf(digests: readonly (readonly [number, number])[]): string {
  const sums = new Uint32Array(2);
  for (const [low, high] of digests) {
    sums[0]! += low;
    sums[1]! += high;
  }
  return [...sums].map((word) => word.toString(16).padStart(8, "0")).join("");
}
