/** Bytes of something incomplete. Its user bounds its size. */
export interface GrowableBuffer {
  size(): number;
  append(bytes: Buffer): void;
  /** Returns the appended bytes and empties the buffer. */
  take(): Buffer;
}

const empty = Buffer.alloc(0);

/** Grows by doubling, so that appending a million chunks of one byte costs no more than one chunk of a million. */
export function createGrowableBuffer(): GrowableBuffer {
  let buffer = empty;
  let size = 0;
  return {
    size: () => size,
    append(bytes) {
      const needed = size + bytes.length;
      if (needed > buffer.length) {
        const grown = Buffer.allocUnsafe(Math.max(needed, 2 * buffer.length));
        buffer.copy(grown, 0, 0, size);
        buffer = grown;
      }
      bytes.copy(buffer, size);
      size = needed;
    },
    take() {
      const taken = buffer.subarray(0, size);
      buffer = empty;
      size = 0;
      return taken;
    },
  };
}
