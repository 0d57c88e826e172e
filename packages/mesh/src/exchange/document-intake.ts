import { EspalierError, type Logger } from "@espalier/common";
import { type ApplyOutcome, type DocumentUpdate, originKey, type ReplicatedDocuments } from "@espalier/replication";
import type { ExchangeLimits } from "./exchange-limits.ts";
import type { ExchangeMeter } from "./exchange-meter.ts";
import type { PeerDocuments } from "./peer-documents.ts";

export interface DocumentIntakeDeps {
  readonly documents: ReplicatedDocuments;
  readonly logger: Logger;
  readonly limits: Pick<ExchangeLimits, "maxRefusedDocuments">;
  readonly meter: ExchangeMeter;
}

/** Gives the replica what came from a peer, and remembers which documents it does not want any more. */
export class DocumentIntake {
  readonly #deps: DocumentIntakeDeps;
  readonly #refused = new Set<string>();

  constructor(deps: DocumentIntakeDeps) {
    this.#deps = deps;
  }

  /** Whether a document was given up. It may be begun again by this router. */
  isRefused(name: string): boolean {
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
      logger.warn("a peer's update was refused", { from, document: update.name, error: error.message });
      peer.link.close("update-refused");
      return undefined;
    }
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
