const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/** Finds where server-sent events end, in a stream that comes in chunks. */
export interface BoundaryFinder {
  /**
   * The offset behind the next blank line of the chunk at or after `from`, or -1. Must be called for each chunk in
   * turn, with its own last answer as `from`, until it gives -1.
   */
  next(chunk: Buffer, from: number): number;
}

/** An event ends at a line end (LF or CR LF) that follows a line end. */
export function createBoundaryFinder(): BoundaryFinder {
  /** Whether nothing but carriage returns came since the last line feed. */
  let lineIsBlank = true;
  return {
    next(chunk, from) {
      let at = from;
      for (;;) {
        while (lineIsBlank) {
          if (at === chunk.length) return -1;
          const code = chunk[at++];
          if (code === lineFeed) return at;
          if (code !== carriageReturn) lineIsBlank = false;
        }
        const found = chunk.indexOf(lineFeed, at);
        if (found < 0) return -1;
        at = found + 1;
        lineIsBlank = true;
      }
    },
  };
}
