/** A message that was published. */
export interface PublishedMessage {
  readonly sequence: number;
  readonly payload: Uint8Array;
}

/** The newest messages of one life, oldest first. */
export interface MessageHistory {
  add(message: PublishedMessage): void;
  /** The last `count`, or all that are kept. */
  newest(count: number): readonly PublishedMessage[];
  clear(): void;
}

/** @param capacity messages that are kept; the oldest gives way */
export function createMessageHistory(capacity: number): MessageHistory {
  let messages: PublishedMessage[] = [];
  return {
    add(message) {
      messages.push(message);
      // Trimmed seldom, so that a message costs no move of all the others.
      if (messages.length >= 2 * capacity) messages = messages.slice(-capacity);
    },
    newest: (count) => messages.slice(messages.length - Math.min(count, capacity, messages.length)),
    clear() {
      messages = [];
    },
  };
}
