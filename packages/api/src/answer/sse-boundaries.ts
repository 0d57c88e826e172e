import { Needle } from "./needle.ts";

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/**
 * Finds where server-sent events end, in a stream that comes in chunks. An event ends at a line end (LF, CR LF or CR)
 * that follows a line end (HTML Living Standard, section 9.2.5).
 */
export class BoundaryFinder {
  #lineIsBlank = true;
  /** Whether the last line end was a carriage return, which a line feed would complete. */
  #isAfterReturn = false;
  /**
   * Whether that carriage return ended an event. A line feed then passes as an event of its own, since the next event
   * may be removed.
   */
  #hasEnded = false;
  /** Whether an event has ended except for a possible line feed. */
  #isPending = false;
  readonly #returns = new Needle(Buffer.of(carriageReturn));

  /**
   * The offset just after the chunk's next blank line at or after `from`, or -1. For each chunk in turn, call it with
   * its last result as `from` until it returns -1.
   */
  next(chunk: Buffer, from: number): number {
    let at = from;
    if (this.#isPending && at < chunk.length) {
      this.#isPending = false;
      return chunk[at] === lineFeed ? at + 1 : at;
    }
    for (;;) {
      while (this.#lineIsBlank) {
        if (at === chunk.length) return -1;
        const code = chunk[at++];
        if (code === carriageReturn) return this.#endAt(chunk, at);
        const isEnd = code === lineFeed && (this.#hasEnded || !this.#isAfterReturn);
        this.#isAfterReturn = false;
        this.#hasEnded = false;
        if (isEnd) return at;
        this.#lineIsBlank = code === lineFeed;
      }
      const found = chunk.indexOf(lineFeed, at);
      const lineEnd = found < 0 ? chunk.length : found;
      const returnAt = this.#returns.findIn(chunk, at, lineEnd);
      const end = returnAt < 0 ? lineEnd : returnAt;
      if (end === chunk.length) return -1;
      this.#isAfterReturn = chunk[end] === carriageReturn;
      this.#hasEnded = false;
      at = end + 1;
      this.#lineIsBlank = true;
    }
  }

  /**
   * @returns offset just after the carriage return that ends an event and its line feed; -1 if that may be in the next
   *   chunk
   */
  #endAt(chunk: Buffer, at: number): number {
    // Streams whose lines end in a carriage return alone never wait.
    this.#hasEnded = this.#isAfterReturn;
    if (this.#hasEnded) return at;
    this.#isPending = at === chunk.length;
    if (this.#isPending) return -1;
    return chunk[at] === lineFeed ? at + 1 : at;
  }
}
