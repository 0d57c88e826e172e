import { RecencyMap } from "@espalier/common";
import type { Bindings } from "@espalier/replication";

/**
 * Remembers which engine holds which stored response of the Responses API, because a follow-up or a retrieval must
 * go to the engine that has it.
 */
export interface StoredResponses {
  remember(responseId: string, engineId: string): void;
  holderOf(responseId: string): string | undefined;
  forget(responseId: string): void;
  readonly size: number;
}

/** How long other routers remember it; after that they ask the engines. */
const sharedTtlMs = 3_600_000;

/**
 * @param capacity entries kept; beyond it the one used longest ago is forgotten
 * @param shared what other routers saw made; undefined when nothing is shared
 */
export function createStoredResponses(
  capacity: number,
  shared: Pick<Bindings, "get" | "set" | "forget"> | undefined = undefined,
): StoredResponses {
  const holders = new RecencyMap<string, string>();
  return {
    remember(responseId, engineId) {
      if (holders.get(responseId) !== engineId) shared?.set(responseId, engineId, sharedTtlMs);
      holders.set(responseId, engineId);
      if (holders.size > capacity) holders.deleteOldest();
    },
    holderOf(responseId) {
      return holders.use(responseId) ?? shared?.get(responseId);
    },
    forget(responseId) {
      holders.delete(responseId);
      shared?.forget(responseId);
    },
    get size() {
      return holders.size;
    },
  };
}
