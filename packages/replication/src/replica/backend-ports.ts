import type { RouterId } from "@espalier/common";
import type { JournalStore } from "../documents/journal.ts";
import type { FactFold, FoldStatement } from "../facts/fact-fold.ts";
import type { LoadExchange } from "../load/load-exchange.ts";
import type { NoteExchange } from "../notes/note-exchange.ts";
import type { ReplicaPorts, SnapshotSink } from "../replica-ports.ts";
import type { SnapshotRequests } from "./snapshot-requests.ts";

export interface BackendPortsParts {
  readonly store: JournalStore;
  readonly fold: FactFold;
  readonly load: LoadExchange;
  readonly notes: NoteExchange;
  readonly requests: SnapshotRequests;
  /** Targets whose events this router journals. */
  readonly ownedTargets: () => Iterable<string>;
  readonly renewEpoch: (above: number) => void;
}

/** The replica as those see it who carry what it shares. */
export function createBackendPorts(parts: BackendPortsParts): ReplicaPorts {
  const { store, fold, load, notes, requests, ownedTargets, renewEpoch } = parts;
  return {
    get origin() {
      return store.own.origin;
    },
    documents: store,
    load,
    notes,
    snapshots: {
      exportFrames: (maxBytes, targets) => fold.exportFrames(maxBytes, targets),
      beginImport(): SnapshotSink {
        const opened = fold.beginImport();
        let isOpen = true;
        const close = (): void => {
          if (isOpen) requests.importEnded();
          isOpen = false;
        };
        requests.importBegun();
        return {
          frame: (bytes) => opened.frame(bytes),
          end() {
            const done = opened.end();
            close();
            return done;
          },
          abort() {
            if (isOpen) opened.abort();
            close();
          },
        };
      },
      onRequest: requests.onRequest,
      unavailable: ({ targets }) => fold.giveUpLoading(targets ?? loadingTargets(fold)),
    },
    statements(): readonly FoldStatement[] {
      const stated: FoldStatement[] = [];
      for (const target of ownedTargets()) {
        const statement = fold.statement(target);
        if (statement) stated.push(statement);
      }
      return stated;
    },
    compareStatement: (statement, from) => void fold.compare(statement, from),
    highestEpoch: (router: RouterId) => store.highestEpoch(router),
    renewEpoch,
  };
}

/** Targets that wait for a snapshot. */
export function loadingTargets(fold: FactFold): readonly string[] {
  return [...fold.states()].flatMap(({ target, progress }) => (progress === "loading" ? [target] : []));
}
