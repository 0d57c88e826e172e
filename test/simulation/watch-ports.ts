import type { Random } from "@espalier/core";
import type { ApplyOutcome, DocumentUpdate, ReplicaPorts } from "@espalier/mesh";

/** What a run wants to know of, and to do with, the ports of a replica. */
export interface PortsWatch {
  /** Draws whether an update comes again; undefined where none does. */
  readonly random: Random | undefined;
  readonly resent: () => void;
  readonly applied: (update: DocumentUpdate) => void;
  readonly loadReceived: (frame: Uint8Array) => void;
  /** A snapshot has come in. */
  readonly imported: () => void;
}

/** Updates that may come again. */
const maxRemembered = 128;
/** The share of updates after which an older one comes again, at most. */
const mostShare = 0.5;

/** The ports of a replica to which now and then an update comes again that it has had before, however long ago. */
export function watchPorts(
  ports: ReplicaPorts,
  { random, resent, applied, loadReceived, imported }: PortsWatch,
): ReplicaPorts {
  const seen: DocumentUpdate[] = [];
  const { documents, load, snapshots } = ports;
  const share = (random?.float() ?? 0) * mostShare;
  const apply = (update: DocumentUpdate): ApplyOutcome => {
    const copy = random ? { ...update, bytes: update.bytes.slice() } : update;
    const outcome = documents.apply(update);
    applied(update);
    if (!random) return outcome;
    if (outcome === "applied") seen[seen.length < maxRemembered ? seen.length : random.integer(maxRemembered)] = copy;
    if (random.float() < share && seen.length > 0) {
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
    load: {
      onFrame: (listener) => load.onFrame(listener),
      setPeerCount: (count) => load.setPeerCount(count),
      fullFrames: () => load.fullFrames(),
      relayFrames: () => load.relayFrames(),
      hasAllOf: (origin) => load.hasAllOf(origin),
      originGone: (origin) => load.originGone(origin),
      receive(frame, isCredible) {
        loadReceived(frame);
        return load.receive(frame, isCredible);
      },
    },
    notes: ports.notes,
    snapshots: {
      exportFrames: (maxBytes, targets, to) => snapshots.exportFrames(maxBytes, targets, to),
      onRequest: (listener) => snapshots.onRequest(listener),
      unavailable: (request) => snapshots.unavailable(request),
      beginImport() {
        const sink = snapshots.beginImport();
        return {
          frame: (bytes) => sink.frame(bytes),
          abort: () => sink.abort(),
          end() {
            const done = sink.end();
            imported();
            return done;
          },
        };
      },
    },
    statements: () => ports.statements(),
    compareStatement: (statement, from) => ports.compareStatement(statement, from),
    highestEpoch: (router) => ports.highestEpoch(router),
    renewEpoch: (above) => ports.renewEpoch(above),
  };
}
