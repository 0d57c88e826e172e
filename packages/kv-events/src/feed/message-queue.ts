/** A message whose sequence number has been read. */
export interface NumberedMessage {
  readonly sequence: number;
  readonly payload: Uint8Array;
}

export interface QueueBounds {
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

  /** Whether the queue is at half of one of its bounds, so that its source should rest. */
  get isHigh(): boolean {
    return 2 * this.count >= this.#bounds.maxMessages || 2 * this.#bytes >= this.#bounds.maxBytes;
  }

  /** @returns false when there is no room. An empty queue has room for one message of any size. */
  push(message: NumberedMessage): boolean {
    const bytes = this.#bytes + message.payload.length;
    if (this.count > 0 && (this.count >= this.#bounds.maxMessages || bytes > this.#bounds.maxBytes)) return false;
    this.#messages.push(message);
    this.#bytes = bytes;
    return true;
  }

  /** Puts back what was taken or held elsewhere, before all others, whatever the bounds: its own source is bounded. */
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
