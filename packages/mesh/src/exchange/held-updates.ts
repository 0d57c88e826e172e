import type { DocumentUpdate } from "@espalier/replication";

export interface HeldUpdate extends DocumentUpdate {
  readonly committedWallMs: number;
}

interface Held {
  readonly updates: HeldUpdate[];
  bytes: number;
}

/** What holding one update costs besides its bytes, so that empty ones are bounded too. */
const overheadBytes = 64;

/**
 * Changes that came before those they follow on, while a diff for these is under way. They save the receiver from asking
 * again and again for what a busy writer has written meanwhile. The newest are kept, because the diff brings the oldest.
 */
export class HeldUpdates {
  readonly #limits: { readonly maxHeldBytesPerDocument: number; readonly maxHeldBytes: number };
  readonly #held = new Map<string, Held>();
  #bytes = 0;

  constructor(limits: { readonly maxHeldBytesPerDocument: number; readonly maxHeldBytes: number }) {
    this.#limits = limits;
  }

  get byteLength(): number {
    return this.#bytes;
  }

  hold(update: HeldUpdate): void {
    const held = this.#held.get(update.name) ?? { updates: [], bytes: 0 };
    this.#held.set(update.name, held);
    held.updates.push(update);
    const lengthBytes = update.bytes.length + overheadBytes;
    held.bytes += lengthBytes;
    this.#bytes += lengthBytes;
    const { maxHeldBytes, maxHeldBytesPerDocument } = this.#limits;
    while (held.updates.length > 0 && (held.bytes > maxHeldBytesPerDocument || this.#bytes > maxHeldBytes)) {
      const length = held.updates.shift()!.bytes.length + overheadBytes;
      held.bytes -= length;
      this.#bytes -= length;
    }
    if (held.updates.length === 0) this.#held.delete(update.name);
  }

  /** Takes out what is held of a document, in the order of its writer. */
  take(name: string): readonly HeldUpdate[] {
    const held = this.#held.get(name);
    if (held === undefined) return [];
    this.#held.delete(name);
    this.#bytes -= held.bytes;
    return held.updates.sort((a, b) => a.from - b.from);
  }
}
