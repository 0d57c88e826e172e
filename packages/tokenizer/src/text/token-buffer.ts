/** A growing row of token ids. It is reused: taking hands out a copy and empties it. */
export interface TokenBuffer {
  push(id: number): void;
  pushAll(ids: ArrayLike<number>): void;
  readonly length: number;
  take(): Uint32Array;
  /** The same as a plain array, which is far cheaper for the few tokens of a word. */
  takeList(): readonly number[];
}

export function createTokenBuffer(): TokenBuffer {
  let ids = new Uint32Array(1_024);
  let length = 0;
  const reserve = (more: number): void => {
    if (length + more <= ids.length) return;
    const larger = new Uint32Array(Math.max(ids.length * 2, length + more));
    larger.set(ids.subarray(0, length));
    ids = larger;
  };
  return {
    push(id) {
      if (length === ids.length) reserve(1);
      ids[length++] = id;
    },
    pushAll(more) {
      reserve(more.length);
      for (let index = 0; index < more.length; index++) ids[length + index] = more[index]!;
      length += more.length;
    },
    get length() {
      return length;
    },
    take() {
      const taken = ids.slice(0, length);
      length = 0;
      return taken;
    },
    takeList() {
      const taken: number[] = [];
      for (let index = 0; index < length; index++) taken.push(ids[index]!);
      length = 0;
      return taken;
    },
  };
}
