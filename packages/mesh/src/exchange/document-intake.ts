import { type Clock, EspalierError, type Logger, RecencyMap } from "@espalier/common";
import {
  type ApplyOutcome,
  DocumentFullError,
  type DocumentUpdate,
  originKey,
  type ReplicatedDocuments,
} from "@espalier/replication";
import type { ExchangeLimits } from "./exchange-limits.ts";
import type { ExchangeMeter } from "./exchange-meter.ts";
import type { PeerDocuments } from "./peer-documents.ts";

/** A document that holds more than this router keeps of one is left alone for so long: it may become smaller. */
export const fullDocumentMs = 60_000;

export interface DocumentIntakeDeps {
  readonly clock: Clock;
  readonly documents: ReplicatedDocuments;
  readonly logger: Logger;
  readonly limits: Pick<ExchangeLimits, "maxRefusedDocuments">;
  readonly meter: ExchangeMeter;
}

/** Gives the replica what came from a peer, and remembers which documents it does not want any more. */
export class DocumentIntake {
  readonly #deps: DocumentIntakeDeps;
  readonly #refused = new Set<string>();
  /** Documents that found no room, and until when nothing more of them is taken. */
  readonly #full = new RecencyMap<string, number>();

  constructor(deps: DocumentIntakeDeps) {
    this.#deps = deps;
  }

  /** Whether a document was given up, or found no room. One that was given up may be begun again by this router. */
  isRefused(name: string): boolean {
    if ((this.#full.get(name) ?? 0) > this.#deps.clock.nowMs()) return true;
    return this.#refused.has(name) && this.#deps.documents.state(name) === undefined;
  }

  /** @returns undefined when the update holds what it may not hold: the link that it came by is closed then */
  take(peer: PeerDocuments, update: DocumentUpdate): ApplyOutcome | undefined {
    const { documents, logger, meter } = this.#deps;
    if (this.isRefused(update.name)) return "dropped";
    try {
      const outcome = documents.apply(update);
      if (outcome === "dropped") this.#refuse(update.name);
      return outcome;
    } catch (error) {
      if (!(error instanceof EspalierError && error.code === "mesh_update_refused")) throw error;
      meter.refused();
      const from = originKey(peer.link.peer.origin);
      if (error instanceof DocumentFullError) {
        logger.warn("a document has no room here", { from, document: update.name, error: error.message });
        this.#leave(update.name);
        return "dropped";
      }
      logger.warn("a peer's update was refused", { from, document: update.name, error: error.message });
      peer.link.close("update-refused");
      return undefined;
    }
  }

  #leave(name: string): void {
    this.#full.set(name, this.#deps.clock.nowMs() + fullDocumentMs);
    if (this.#full.size > this.#deps.limits.maxRefusedDocuments) this.#full.deleteOldest();
  }

  #refuse(name: string): void {
    this.#refused.add(name);
    if (this.#refused.size <= this.#deps.limits.maxRefusedDocuments) return;
    for (const oldest of this.#refused) {
      this.#refused.delete(oldest);
      break;
    }
  }
}
