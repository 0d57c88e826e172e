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

/** An event ends at a line end (LF, CR LF or CR) that follows a line end (HTML Living Standard, section 9.2.5). */
export function createBoundaryFinder(): BoundaryFinder {
  let lineIsBlank = true;
  /** Whether the last line end was a carriage return, to which a line feed would belong. */
  let isAfterReturn = false;
  /** Whether an event ended with it. A line feed is then an event of its own, for the next one may be taken out. */
  let hasEnded = false;
  /** Whether an event has ended but for a line feed that may come. */
  let isPending = false;
  /** The chunk that was searched for a carriage return, and where the next one is in it; its length if nowhere. */
  let searched: Buffer | undefined;
  let returnAt = 0;

  /** Few streams have any: so that none is looked for twice. */
  const findReturn = (chunk: Buffer, at: number): number => {
    if (searched === chunk && returnAt >= at) return returnAt;
    const found = chunk.indexOf(carriageReturn, at);
    searched = chunk;
    returnAt = found < 0 ? chunk.length : found;
    return returnAt;
  };
  /** @returns behind the carriage return that ends an event, and its line feed; -1 where that may be in the next chunk */
  const endAt = (chunk: Buffer, at: number): number => {
    // Where lines end in a carriage return alone, nothing is waited for.
    hasEnded = isAfterReturn;
    if (hasEnded) return at;
    isPending = at === chunk.length;
    if (isPending) return -1;
    return chunk[at] === lineFeed ? at + 1 : at;
  };
  return {
    next(chunk, from) {
      let at = from;
      if (isPending && at < chunk.length) {
        isPending = false;
        return chunk[at] === lineFeed ? at + 1 : at;
      }
      for (;;) {
        while (lineIsBlank) {
          if (at === chunk.length) return -1;
          const code = chunk[at++];
          if (code === carriageReturn) return endAt(chunk, at);
          const isEnd = code === lineFeed && (hasEnded || !isAfterReturn);
          isAfterReturn = false;
          hasEnded = false;
          if (isEnd) return at;
          lineIsBlank = code === lineFeed;
        }
        const found = chunk.indexOf(lineFeed, at);
        const end = Math.min(found < 0 ? chunk.length : found, findReturn(chunk, at));
        if (end === chunk.length) return -1;
        isAfterReturn = chunk[end] === carriageReturn;
        hasEnded = false;
        at = end + 1;
        lineIsBlank = true;
      }
    },
  };
}
