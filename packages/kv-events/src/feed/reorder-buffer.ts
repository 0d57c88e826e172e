import type { NumberedMessage, QueueBounds } from "./message-queue.ts";

/** Messages that came before their turn, by number, bounded in count and in bytes of payload. */
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
   * @returns `held` when a message of this number is there already, `full` when there is no room; an empty buffer has room
   *   for one message of any size
   */
  add(message: NumberedMessage): "added" | "held" | "full" {
    if (this.#messages.has(message.sequence)) return "held";
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

  /** Takes out the message of the lowest number. */
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

  /** Takes out everything, lowest number first. */
  takeAll(): NumberedMessage[] {
    const all = [...this.#messages.values()].sort((a, b) => a.sequence - b.sequence);
    this.#messages.clear();
    this.#bytes = 0;
    return all;
  }
}
