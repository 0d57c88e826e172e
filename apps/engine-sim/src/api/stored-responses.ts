import type { ChatMessage } from "../text/chat-template.ts";

/** An answer of the Responses API that can be read, deleted, or continued from. */
interface StoredResponse {
  readonly body: string;
  /** The conversation up to and with this answer. */
  readonly messages: readonly ChatMessage[];
}

export interface StoredResponses {
  get(id: string): StoredResponse | undefined;
  add(id: string, response: StoredResponse): void;
  remove(id: string): boolean;
  clear(): void;
}

/** @param capacity answers that are kept; the oldest gives way */
export function createStoredResponses(capacity: number): StoredResponses {
  const responses = new Map<string, StoredResponse>();
  return {
    get: (id) => responses.get(id),
    add(id, response) {
      responses.set(id, response);
      if (responses.size > capacity) responses.delete(responses.keys().next().value as string);
    },
    remove: (id) => responses.delete(id),
    clear: () => responses.clear(),
  };
}
