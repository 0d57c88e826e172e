import type { ChatMessage } from "../text/model-text.ts";

/** An answer of the Responses API that can be read, deleted, or continued from. */
interface StoredResponse {
  readonly body: string;
  /** The conversation up to and with this answer. */
  readonly messages: readonly ChatMessage[];
}

export type StoredResponses = ReturnType<typeof createStoredResponses>;

/** @param capacity answers kept; the oldest is dropped */
export function createStoredResponses(capacity: number) {
  const responses = new Map<string, StoredResponse>();
  return {
    get: (id: string): StoredResponse | undefined => responses.get(id),
    add(id: string, response: StoredResponse): void {
      responses.set(id, response);
      if (responses.size > capacity) responses.delete(responses.keys().next().value as string);
    },
    remove: (id: string): boolean => responses.delete(id),
    clear: (): void => responses.clear(),
  };
}
