import type { TextTokenizer } from "../../src/text/text-tokenizer.ts";
import type { PieceBatch, TokenizerPool } from "../../src/workers/tokenizer-pool.ts";

/** A pool whose batches wait until the test answers them, in any order. */
export interface ManualPool extends TokenizerPool {
  /** All that came, answered or not. */
  readonly batches: readonly PieceBatch[];
  /** How many wait. */
  readonly open: number;
  /** Turns away what comes while it is true. */
  isFull: boolean;
  /** @param index of those that wait */
  answer(index?: number): void;
  /** Answers with rows that are not those of the texts. */
  answerWith(rows: readonly Uint32Array[]): void;
  fail(index?: number): void;
}

export function createManualPool(tokenizer: TextTokenizer): ManualPool {
  const batches: PieceBatch[] = [];
  const waiting: {
    readonly batch: PieceBatch;
    readonly resolve: (rows: readonly Uint32Array[]) => void;
    readonly reject: (error: Error) => void;
  }[] = [];
  const taken = (index: number) => {
    const [one] = waiting.splice(index, 1);
    if (!one) throw new Error(`no batch ${index} waits`);
    return one;
  };
  return {
    batches,
    isFull: false,
    get open() {
      return waiting.length;
    },
    start: async () => undefined,
    stop: async () => undefined,
    warm: async () => undefined,
    encode(batch) {
      if (this.isFull) return undefined;
      batches.push(batch);
      return new Promise((resolve, reject) => waiting.push({ batch, resolve, reject }));
    },
    answer(index = 0) {
      const { batch, resolve } = taken(index);
      resolve(batch.texts.map((text, at) => tokenizer.encodePiece(text, batch.startsPrompt && at === 0)));
    },
    answerWith: (rows) => taken(0).resolve(rows),
    fail: (index = 0) => taken(index).reject(new Error("the thread ended")),
  };
}
