import type { Random } from "@espalier/core";
import type { ApplyOutcome, DocumentUpdate, ReplicaPorts } from "@espalier/mesh";

/** Updates that may come again. */
const maxRemembered = 256;

/**
 * The ports of a replica to which every now and then an update comes again that it has had before, of whatever document
 * and however long ago.
 *
 * @param resent told whenever one does
 */
export function withResentUpdates(ports: ReplicaPorts, random: Random, resent: () => void): ReplicaPorts {
  const seen: DocumentUpdate[] = [];
  const { documents } = ports;
  const apply = (update: DocumentUpdate): ApplyOutcome => {
    const copy = { ...update, bytes: update.bytes.slice() };
    const outcome = documents.apply(update);
    if (outcome === "applied") seen[seen.length < maxRemembered ? seen.length : random.integer(maxRemembered)] = copy;
    if (random.integer(4) === 0 && seen.length > 0) {
      const again = seen[random.integer(seen.length)]!;
      documents.apply({ ...again, bytes: again.bytes.slice() });
      resent();
    }
    return outcome;
  };
  return {
    get origin() {
      return ports.origin;
    },
    documents: {
      list: () => documents.list(),
      state: (name) => documents.state(name),
      stateVector: (name) => documents.stateVector(name),
      diff: (name, stateVector, maxBytes) => documents.diff(name, stateVector, maxBytes),
      onUpdate: (listener) => documents.onUpdate(listener),
      apply,
    },
    load: ports.load,
    notes: ports.notes,
    snapshots: ports.snapshots,
    statements: () => ports.statements(),
    compareStatement: (statement, from) => ports.compareStatement(statement, from),
    highestEpoch: (router) => ports.highestEpoch(router),
    renewEpoch: (above) => ports.renewEpoch(above),
  };
}
