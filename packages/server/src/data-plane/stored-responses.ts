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
  // A Map iterates in order of insertion: moving an entry to the end on use makes its first key the oldest.
  const holders = new Map<string, string>();
  return {
    remember(responseId, engineId) {
      if (holders.get(responseId) !== engineId) shared?.set(responseId, engineId, sharedTtlMs);
      holders.delete(responseId);
      holders.set(responseId, engineId);
      if (holders.size <= capacity) return;
      const oldest = holders.keys().next();
      if (!oldest.done) holders.delete(oldest.value);
    },
    holderOf(responseId) {
      const holder = holders.get(responseId);
      if (holder === undefined) return shared?.get(responseId);
      holders.delete(responseId);
      holders.set(responseId, holder);
      return holder;
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
