import type { CompiledConfig } from "@espalier/config";
import type { Backend, BackendDescription, Ownership } from "@espalier/mesh";
import type { Replica } from "@espalier/replication";

export interface MeshDescriptionParts {
  readonly config: Pick<CompiledConfig, "mesh">;
  readonly replica: Replica;
  readonly backend: Backend;
  readonly ownership: Ownership;
  /** Targets with events that the routers read. */
  readonly readTargets: readonly string[];
}

/** A router's place among the others, as plain JSON for `GET /admin/mesh` and `espalier status`. */
export type MeshDescription = ReturnType<typeof describeMesh>;

/** Targets that are listed one by one. */
const listedTargets = 1_024;

export function describeMesh({ config, replica, backend, ownership, readTargets }: MeshDescriptionParts) {
  const { origin, journals, foldBytes, targets, load } = replica.describe();
  const described: BackendDescription = backend.describe();
  const statements = targets.map(({ target }) => replica.fold.statement(target));
  const feeds = readTargets.map((target) => ({
    role: ownership.roleOf(target),
    owner: ownership.ownerOf(target) ?? null,
  }));
  return {
    backend: described.kind === "mesh" ? "peers" : described.kind,
    cluster: config.mesh.cluster,
    events: config.mesh.events,
    router: origin.router,
    epoch: origin.epoch,
    address: described.address,
    waitingFor: described.waitingFor,
    members: described.members,
    // What one said whose lease has ended counts nowhere any more.
    load: load.filter(({ leaseLeftMs }) => leaseLeftMs > 0),
    feeds: {
      owned: feeds.filter(({ role }) => role === "owner").length,
      backup: feeds.filter(({ role }) => role === "backup").length,
      unread: feeds.filter(({ owner }) => owner === null).length,
    },
    facts: {
      targets: targets.length,
      blocks: statements.reduce((sum, statement) => sum + (statement?.blocks ?? 0), 0),
      settled: statements.filter((statement) => statement !== undefined).length,
      digest: digestOf(statements.map((statement) => statement?.digest ?? [0, 0])),
      waitingBytes: foldBytes,
    },
    journals: { count: journals.documents, bytes: journals.byteLength, own: journals },
    targets: targets.slice(0, listedTargets).map(({ target, life, last, isComplete, progress }, at) => ({
      target,
      owner: replica.claimOf(target)?.origin.router ?? null,
      worth: replica.qualityOf(target),
      life: life ? `${life.sequence}.${life.timestampUs}` : null,
      sequence: last?.sequence ?? null,
      isComplete,
      progress,
      blocks: statements[at]?.blocks ?? null,
      digest: statements[at] ? digestOf([statements[at].digest]) : null,
    })),
  };
}

/** Sums of digests, as sixteen hexadecimal digits: the same for the same facts, in whatever order. */
function digestOf(digests: readonly (readonly [number, number])[]): string {
  const sums = new Uint32Array(2);
  for (const [low, high] of digests) {
    sums[0]! += low;
    sums[1]! += high;
  }
  return [...sums].map((word) => word.toString(16).padStart(8, "0")).join("");
}
