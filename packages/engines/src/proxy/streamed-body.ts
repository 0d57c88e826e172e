/** Bytes of a body that no engine has taken yet, beyond which its sender should pause. */
const maxAheadBytes = 262_144;
/** Most bytes of a body that are held after an engine took them, so that another engine can get them too. */
export const maxHeldBytes = 1_048_576;

/**
 * A body that is sent while it arrives. An engine that fails can be followed by another one as long as all of the body is held, which
 * ends beyond 1 MiB.
 */
export class StreamedBody implements AsyncIterable<Buffer> {
  /** Declared by its sender; undefined for a body in chunks. */
  sizeBytes: number | undefined;
  /** Whether all bytes so far are held. */
  isWhole = true;
  #pieces: Buffer[];
  #heldBytes: number;
  /** The piece that the present reader takes next. */
  #next = 0;
  #aheadBytes: number;
  #hasEnded = false;
  #isHeld = true;
  #fault: Error | undefined;
  #reader = 0;
  #wake: (() => void) | undefined;
  #onDemand: () => void = () => {};
  #onFault: ((fault: Error) => void) | undefined;

  /** @param pieces its beginning */
  constructor(pieces: readonly Buffer[], sizeBytes: number | undefined) {
    this.#pieces = [...pieces];
    this.#heldBytes = pieces.reduce((sum, { length }) => sum + length, 0);
    this.#aheadBytes = this.#heldBytes;
    this.sizeBytes = sizeBytes;
  }

  /** Called when the sender may go on after `push` returned false. */
  set onDemand(listener: () => void) {
    this.#onDemand = listener;
  }

  /** Called when the body turns out to be unfit. */
  set onFault(listener: (fault: Error) => void) {
    this.#onFault = listener;
    if (this.#fault) listener(this.#fault);
  }

  /** Replaces a part of the beginning, before any reader has begun. */
  replace(from: number, to: number, by: Buffer): void {
    const all = Buffer.concat(this.#pieces);
    const change = by.length - (to - from);
    this.#pieces = [all.subarray(0, from), by, all.subarray(to)].filter(({ length }) => length > 0);
    this.#heldBytes += change;
    this.#aheadBytes += change;
    if (this.sizeBytes !== undefined) this.sizeBytes += change;
  }

  /** @returns false for the sender to pause */
  push(piece: Buffer): boolean {
    this.#pieces.push(piece);
    this.#heldBytes += piece.length;
    this.#aheadBytes += piece.length;
    this.#dropTaken();
    this.#wake?.();
    return this.#aheadBytes < maxAheadBytes;
  }

  end(): void {
    this.#hasEnded = true;
    this.#wake?.();
  }

  /** No more of it comes, and what was sent must not be taken for a whole body. */
  fail(fault: Error): void {
    if (this.#fault) return;
    this.#fault = fault;
    this.#wake?.();
    this.#onFault?.(fault);
  }

  /** No other engine will get it. */
  release(): void {
    this.#isHeld = false;
    this.#dropTaken();
  }

  /** Its last reader stops, and it takes no more memory. */
  close(): void {
    this.#reader += 1;
    this.#pieces = [];
    this.#next = 0;
    this.#wake?.();
  }

  /** Reads from the beginning, in place of any earlier reader. */
  [Symbol.asyncIterator](): AsyncIterator<Buffer> {
    const reader = ++this.#reader;
    this.#wake?.();
    this.#next = 0;
    this.#aheadBytes = this.#heldBytes;
    return {
      next: async () => {
        while (reader === this.#reader && !this.#fault && this.#next === this.#pieces.length && !this.#hasEnded) {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
        if (this.#fault) throw this.#fault;
        if (reader !== this.#reader) throw new Error("Another attempt sends the body.");
        const value = this.#pieces[this.#next];
        if (!value) return { done: true, value: undefined };
        this.#next += 1;
        this.#aheadBytes -= value.length;
        this.#dropTaken();
        if (this.#aheadBytes < maxAheadBytes) this.#onDemand();
        return { done: false, value };
      },
    };
  }

  /** A body that has ended before it was too long to be held stays. */
  #dropTaken(): void {
    const isLong = this.#heldBytes > maxHeldBytes && !this.#hasEnded;
    if (this.#next === 0 || !(isLong || !this.#isHeld || !this.isWhole)) return;
    for (const { length } of this.#pieces.splice(0, this.#next)) this.#heldBytes -= length;
    this.#next = 0;
    this.isWhole = false;
  }
}
