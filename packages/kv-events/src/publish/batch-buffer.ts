/** A published message as it is kept for replay. */
export interface BufferedBatch {
  readonly sequence: number;
  readonly payload: Uint8Array;
}

/** The last batches that were published, oldest first. Forgets the oldest when full, as engines do. */
export interface BatchBuffer {
  /** The batches from `sequence` on, or from the oldest one that is kept. Sequences must be added in rising order. */
  from(sequence: number): readonly BufferedBatch[];
  add(batch: BufferedBatch): void;
  clear(): void;
}

/** @param capacity how many are kept */
export function createBatchBuffer(capacity: number): BatchBuffer {
  let batches: BufferedBatch[] = [];
  let start = 0;
  return {
    from(sequence) {
      const first = batches.findIndex((batch, index) => index >= start && batch.sequence >= sequence);
      return first < 0 ? [] : batches.slice(first);
    },
    add(batch) {
      batches.push(batch);
      if (batches.length - start > capacity) start += 1;
      // Moving what is kept only when half is gone costs a constant per batch.
      if (start * 2 > batches.length) {
        batches = batches.slice(start);
        start = 0;
      }
    },
    clear() {
      batches = [];
      start = 0;
    },
  };
}
