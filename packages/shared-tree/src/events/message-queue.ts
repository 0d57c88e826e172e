import type { NumberedMessage } from "@espalier/engine-model/kv-events";

interface QueueBounds {
  readonly maxMessages: number;
  readonly maxBytes: number;
}

/** Messages in order of arrival, bounded in number and in bytes of payload. */
export class MessageQueue {
  readonly #bounds: QueueBounds;
  #messages: (NumberedMessage | undefined)[] = [];
  #head = 0;
  #bytes = 0;

  constructor(bounds: QueueBounds) {
    this.#bounds = bounds;
  }

  get count(): number {
    return this.#messages.length - this.#head;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether the queue is half full by either bound, so that its source should pause. */
  get isHigh(): boolean {
    return 2 * this.count >= this.#bounds.maxMessages || 2 * this.#bytes >= this.#bounds.maxBytes;
  }

  /** @returns false when it is full. An empty queue accepts one message of any size. */
  push(message: NumberedMessage): boolean {
    const bytes = this.#bytes + message.payload.length;
    if (this.count > 0 && (this.count >= this.#bounds.maxMessages || bytes > this.#bounds.maxBytes)) return false;
    this.#messages.push(message);
    this.#bytes = bytes;
    return true;
  }

  /** Puts messages back before all others, regardless of the bounds: their source is bounded itself. */
  putBack(messages: readonly NumberedMessage[]): void {
    this.#messages = [...messages, ...this.#messages.slice(this.#head)];
    this.#head = 0;
    for (const { payload } of messages) this.#bytes += payload.length;
  }

  shift(): NumberedMessage | undefined {
    const message = this.#messages[this.#head];
    if (!message) return undefined;
    this.#messages[this.#head++] = undefined;
    this.#bytes -= message.payload.length;
    if (2 * this.#head >= this.#messages.length) {
      this.#messages.splice(0, this.#head);
      this.#head = 0;
    }
    return message;
  }

  clear(): void {
    this.#messages = [];
    this.#head = 0;
    this.#bytes = 0;
  }
}

/** Messages that arrived early, by number, bounded in count and in bytes of payload. */
export class ReorderBuffer {
  readonly #bounds: QueueBounds;
  readonly #messages = new Map<number, NumberedMessage>();
  #bytes = 0;

  constructor(bounds: QueueBounds) {
    this.#bounds = bounds;
  }

  get count(): number {
    return this.#messages.size;
  }

  /**
   * @returns `duplicate` when it has a message with this number, `full` at its bounds; an empty buffer accepts one
   *   message of any size
   */
  add(message: NumberedMessage): "added" | "duplicate" | "full" {
    if (this.#messages.has(message.sequence)) return "duplicate";
    const bytes = this.#bytes + message.payload.length;
    const count = this.#messages.size;
    if (count > 0 && (count >= this.#bounds.maxMessages || bytes > this.#bounds.maxBytes)) return "full";
    this.#messages.set(message.sequence, message);
    this.#bytes = bytes;
    return "added";
  }

  has(sequence: number): boolean {
    return this.#messages.has(sequence);
  }

  /** Removes the message with the lowest number. */
  takeLowest(): NumberedMessage | undefined {
    let lowest: NumberedMessage | undefined;
    for (const message of this.#messages.values()) {
      if (!lowest || message.sequence < lowest.sequence) lowest = message;
    }
    if (!lowest) return undefined;
    this.#messages.delete(lowest.sequence);
    this.#bytes -= lowest.payload.length;
    return lowest;
  }

  /** Removes all messages, lowest number first. */
  takeAll(): NumberedMessage[] {
    const all = [...this.#messages.values()].sort((a, b) => a.sequence - b.sequence);
    this.#messages.clear();
    this.#bytes = 0;
    return all;
  }
}
