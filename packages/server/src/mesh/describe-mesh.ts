import { type Described, json } from "@espalier/core";
import { type Backend, memberDescription, refusedPeer } from "@espalier/mesh";
import type { Replica } from "@espalier/shared-tree";
import type { CompiledConfig } from "../config/index.ts";
import { feedQuality } from "../prefix/engine-feeds.ts";
import { type FleetWatch, lostRouter, releaseDescription } from "./fleet-watch.ts";

const meshMember = json.named(
  "MeshMember",
  json.object({ ...memberDescription.properties, ...releaseDescription.properties }),
);

/** This router's view of the mesh, as plain JSON for `GET /admin/mesh` and `espalier status`. */
export const meshDescription = json.named(
  "Mesh",
  json.object({
    backend: json.oneOf(["peers", "redis"]),
    cluster: json.text(),
    events: json.text("Who reads the engines' KV events."),
    router: json.text(),
    epoch: json.integer("Of this run of the router."),
    region: json.nullable(json.text(), "`mesh.region`."),
    address: json.nullable(json.text()),
    waitingFor: json.list(json.text()),
    members: json.list(meshMember),
    lost: json.list(lostRouter, "Routers that failed in the last 30 minutes, and are no members any more."),
    refused: json.list(
      refusedPeer,
      "Routers with which no link was made in the last 30 minutes, at most 32, the latest first.",
    ),
    refusedNotes: json.list(
      json.object({ kind: json.text(), count: json.integer() }),
      "What this router would have told the others of its estimates, by kind, and found no place for, since it began.",
    ),
    load: json.list(
      json.object({
        router: json.text(),
        epoch: json.integer(),
        ageMs: json.number(),
        leaseLeftMs: json.number(),
        targets: json.integer(),
        inFlight: json.integer(),
      }),
    ),
    feeds: json.object({ owned: json.integer(), backup: json.integer(), unread: json.integer() }),
    facts: json.object({
      targets: json.integer(),
      blocks: json.integer(),
      settled: json.integer(),
      digest: json.text(),
      waitingBytes: json.integer(),
    }),
    journals: json.object({
      count: json.integer(),
      bytes: json.integer(),
      own: json.anyObject("Statistics of the journals."),
    }),
    targets: json.list(
      json.object({
        target: json.text(),
        owner: json.nullable(json.text()),
        worth: feedQuality,
        life: json.nullable(json.text(), "Epoch of the engine."),
        sequence: json.nullable(json.integer()),
        isComplete: json.boolean(),
        progress: json.oneOf(["current", "waiting", "open", "loading"]),
        blocks: json.nullable(json.integer()),
        digest: json.nullable(json.text()),
      }),
      "At most 1,024.",
    ),
  }),
);

export type MeshDescription = Described<typeof meshDescription>;

export const meshOff = json.named("MeshOff", json.object({ backend: json.constant("off") }));

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
    refusedNotes: replica.notes.refused(),
    // Load of a router whose lease has expired does not count.
    load: load.filter(({ leaseLeftMs }) => leaseLeftMs > 0),
    feeds: {
      owned: feeds.filter(({ role }) => role === "owner").length,
      backup: feeds.filter(({ role }) => role === "backup").length,
      unread: feeds.filter(({ nomination }) => nomination?.owner === undefined).length,
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
      worth: replica.feeds.qualityOf(target),
      life: epoch ? `${epoch.sequence}.${epoch.timestampUs}` : null,
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
