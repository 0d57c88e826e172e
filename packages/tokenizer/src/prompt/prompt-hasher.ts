import { type BlockHasher, createBlockHasher, createTextHasher, type Hash64 } from "@espalier/prefix-index";

/** The hashing that prompts need. One can serve all models of a thread: nothing stays in it between two calls. */
export interface PromptHasher {
  readonly blocks: BlockHasher;
  /** Whoever uses it resets it first. */
  readonly text: TextKeyHasher;
}

/** A hash of a text so far, of pieces that are added one by one. It tells texts apart within this package. */
export interface TextKeyHasher extends Hash64 {
  update(piece: string): void;
  reset(): void;
}

/** Makes the hashing of the prefix index, so that digests here equal those of engines' events there. */
export const createPromptHasher = (): PromptHasher => ({ blocks: createBlockHasher(), text: createTextKeyHasher() });

const sliceLength = 16_384;

/** Takes the UTF-16 of a text, which costs a tenth of making UTF-8 of one that is not Latin. */
function createTextKeyHasher(): TextKeyHasher {
  const hasher = createTextHasher();
  const bytes = Buffer.alloc(sliceLength * 2);
  return {
    update(piece) {
      for (let at = 0; at < piece.length; at += sliceLength) {
        const slice = piece.length <= sliceLength ? piece : piece.slice(at, at + sliceLength);
        hasher.update(bytes.subarray(0, bytes.write(slice, 0, "utf16le")));
      }
    },
    reset: () => hasher.reset(),
    get low() {
      return hasher.low;
    },
    get high() {
      return hasher.high;
    },
  };
}
