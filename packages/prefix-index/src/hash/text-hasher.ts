import { hashKernel } from "./hash-kernel.ts";
import type { Hash64 } from "./hash64.ts";
import { type HashKernel, type KernelName, kernelMemory } from "./kernel-memory.ts";

/**
 * The hash of a content that arrives in pieces, known after each of them. It depends only on the bytes so far, not on
 * where they were cut. Strings count as their UTF-8, each piece by itself: a surrogate whose other half is not in the
 * same piece counts as U+FFFD.
 */
export interface TextHasher extends Hash64 {
  update(piece: string | Uint8Array): void;
  /** Forgets all pieces. */
  reset(): void;
}

const { inputBytes, valueAt, lanesAt } = kernelMemory;
const laneWords = 8;
const stripeBytes = 32;

/**
 * Makes a hasher of one content; several may be in use at once.
 *
 * @param options.kernel by default `wasm`, or `js` where WebAssembly is switched off
 * @throws Error when the processor is not little-endian, or `wasm` is asked for and WebAssembly is switched off
 */
export function createTextHasher(options: { readonly kernel?: KernelName } = {}): TextHasher {
  return new StreamHasher(hashKernel(options.kernel));
}

const encoder = new TextEncoder();

class StreamHasher implements TextHasher {
  low = 0;
  high = 0;
  readonly #kernel: HashKernel;
  /** Input of the kernel for new bytes. In front of it there is room for what is left of the pieces before. */
  readonly #input: Uint8Array;
  readonly #lanes = new Uint32Array(laneWords);
  /** The bytes since the last whole stripe. */
  readonly #rest = new Uint8Array(stripeBytes);
  #restBytes = 0;
  #totalBytes = 0;

  constructor(kernel: HashKernel) {
    this.#kernel = kernel;
    this.#input = kernel.bytes.subarray(stripeBytes, inputBytes);
    this.reset();
  }

  reset(): void {
    this.#lanes.fill(0);
    this.#restBytes = 0;
    this.#totalBytes = 0;
    this.#absorb(0);
  }

  update(piece: string | Uint8Array): void {
    for (let at = 0; at < piece.length; ) {
      let written: number;
      if (typeof piece === "string") {
        const progress = encoder.encodeInto(at === 0 ? piece : piece.slice(at), this.#input);
        written = progress.written;
        at += progress.read;
      } else {
        const slice = piece.subarray(at, at + this.#input.length);
        this.#input.set(slice);
        written = slice.length;
        at += written;
      }
      this.#absorb(written);
    }
  }

  /** Takes in what is left of before and the first `written` bytes of the input. */
  #absorb(written: number): void {
    const { bytes, words, absorb } = this.#kernel;
    const lanes = this.#lanes;
    const rest = this.#rest;
    const start = stripeBytes - this.#restBytes;
    for (let index = 0; index < laneWords; index++) words[lanesAt / 4 + index] = lanes[index]!;
    for (let index = 0; index < this.#restBytes; index++) bytes[start + index] = rest[index]!;
    this.#totalBytes += written;
    absorb(start, this.#restBytes + written, this.#totalBytes);
    for (let index = 0; index < laneWords; index++) lanes[index] = words[lanesAt / 4 + index]!;
    this.#restBytes = (this.#restBytes + written) % stripeBytes;
    const end = stripeBytes + written;
    for (let index = 0; index < this.#restBytes; index++) rest[index] = bytes[end - this.#restBytes + index]!;
    this.low = words[valueAt / 4]!;
    this.high = words[valueAt / 4 + 1]!;
  }
}
