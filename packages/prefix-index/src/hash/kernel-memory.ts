/**
 * What lies where in the memory in which kernels work, in bytes; `kernel.wat` has the same numbers. Inputs of any length
 * pass through it slice by slice.
 */
export const kernelMemory = {
  inputBytes: 65_536,
  contentsAt: 65_536,
  chainAt: 98_304,
  valueAt: 131_072,
  lanesAt: 131_080,
  totalBytes: 196_608,
  /** Blocks whose contents and chain hashes fit. */
  maxBlocks: 4_096,
} as const;

/** Whose arithmetic hashes. Both give the same results; `js` is slower. */
export type KernelName = "wasm" | "js";

/** The arithmetic of `kernel.wat` over one piece of memory. */
export interface KernelArithmetic {
  readonly memory: ArrayBuffer;
  /** Digests `count` blocks of `blockBytes` from `at` into contents, and mixes them into a chain after `value`. */
  readonly hashBlocks: (at: number, blockBytes: number, count: number) => void;
  /** Mixes `count` contents into a chain after `value`. */
  readonly mixContents: (count: number) => void;
  /**
   * Takes the `bytes` from `at` into a stream: whole stripes of 32 into its lanes, all of them into the digest, which
   * goes to `value`. `total` is the length of the stream so far.
   */
  readonly absorb: (at: number, bytes: number, total: number) => void;
}

/** Arithmetic, with views of all of its memory. */
export interface HashKernel extends KernelArithmetic {
  readonly name: KernelName;
  readonly bytes: Uint8Array;
  readonly words: Uint32Array;
}
