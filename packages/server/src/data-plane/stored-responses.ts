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

/** @param capacity entries kept; beyond it the one used longest ago is forgotten */
export function createStoredResponses(capacity: number): StoredResponses {
  // A Map iterates in order of insertion: moving an entry to the end on use makes its first key the oldest.
  const holders = new Map<string, string>();
  return {
    remember(responseId, engineId) {
      holders.delete(responseId);
      holders.set(responseId, engineId);
      if (holders.size <= capacity) return;
      const oldest = holders.keys().next();
      if (!oldest.done) holders.delete(oldest.value);
    },
    holderOf(responseId) {
      const holder = holders.get(responseId);
      if (holder !== undefined) {
        holders.delete(responseId);
        holders.set(responseId, holder);
      }
      return holder;
    },
    forget: (responseId) => {
      holders.delete(responseId);
    },
    get size() {
      return holders.size;
    },
  };
}
