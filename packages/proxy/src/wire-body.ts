/** A body of more bytes goes out in its pieces: undici holds what it is given as a whole until the answer has ended. */
const joinedBytes = 128 * 1_024;

/** A large body as undici takes it: anew for each attempt, until it is let go of. */
export class PiecedBody implements Iterable<Buffer> {
  readonly sizeBytes: number;
  #pieces: readonly Buffer[];

  constructor(pieces: readonly Buffer[], sizeBytes: number) {
    this.#pieces = pieces;
    this.sizeBytes = sizeBytes;
  }

  [Symbol.iterator](): Iterator<Buffer> {
    let at = 0;
    return {
      next: () => {
        const value = this.#pieces[at++];
        return value ? { done: false, value } : { done: true, value: undefined };
      },
    };
  }

  /** It will be sent no more. */
  letGo(): void {
    this.#pieces = [];
  }
}

export type WireBody = Buffer | PiecedBody | null;

/** A body as it goes to an engine: in one piece unless it is large; null when there is none. */
export function wireBody(pieces: readonly Buffer[]): WireBody {
  const sizeBytes = pieces.reduce((sum, { length }) => sum + length, 0);
  if (sizeBytes > joinedBytes) return new PiecedBody(pieces, sizeBytes);
  if (pieces.length <= 1) return pieces[0] ?? null;
  return Buffer.concat(pieces);
}
