import { type HashKernel, hashKernel, type KernelName, kernelMemory } from "./hash-kernel.ts";

/** 64 bits in two halves, both unsigned 32-bit integers. Arrays have the low half first ("hash words"). */
export interface Hash64 {
  readonly low: number;
  readonly high: number;
}

/**
 * The hash of a content that arrives in pieces, available after each piece. It depends only on the bytes so far, not on
 * where they were cut. Each string piece counts as its UTF-8: a surrogate whose other half is not in the same piece
 * counts as U+FFFD.
 */
export interface TextHasher extends Hash64 {
  update(piece: string | Uint8Array): void;
  /** Discards all pieces. */
  reset(): void;
}

const { inputBytes, valueAt, lanesAt } = kernelMemory;
const laneWords = 8;
const stripeBytes = 32;

/**
 * Creates a hasher of one content; several may be in use at once.
 *
 * @param options.kernel by default `wasm`, or `js` if WebAssembly is disabled
 * @throws Error if the processor is not little-endian, or if `wasm` is requested and WebAssembly is disabled
 */
export function createTextHasher(options: { readonly kernel?: KernelName } = {}): TextHasher {
  return new StreamHasher(hashKernel(options.kernel));
}

const encoder = new TextEncoder();

class StreamHasher implements TextHasher {
  low = 0;
  high = 0;
  readonly #kernel: HashKernel;
  /** Kernel input for new bytes. The space before it takes the rest of the previous pieces. */
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

  /** Adds the rest of the previous pieces and the first `written` bytes of the input. */
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

let shared: TextHasher | undefined;

/**
 * The hash of one content, equal in every process. A string counts as its UTF-8, with U+FFFD for unpaired surrogates.
 *
 * @throws Error if the processor is not little-endian
 */
export function hashOf(content: string | Uint8Array): Hash64 {
  shared ??= createTextHasher();
  shared.reset();
  shared.update(content);
  return { low: shared.low, high: shared.high };
}

/** What separates chains from their start. Chains with different roots share no hash. */
export interface ChainRootParts {
  /** Equal in every router of a fleet. */
  readonly seed: string;
  readonly model?: string | undefined;
  /** Name of a LoRA adapter. */
  readonly adapter?: string | undefined;
  readonly cacheSalt?: string | undefined;
  /** In units: tokens, or bytes of text. */
  readonly blockSize: number;
  readonly unit: "tokens" | "bytes";
}

/** The parent of the first block of a chain. */
export type ChainRoot = Hash64;

/**
 * The root of all chains over blocks of this kind, equal in every process and on every machine. An absent part differs
 * from an empty one. Takes about a microsecond, so callers with few different roots keep them.
 *
 * @throws RangeError if the block size is not a positive integer
 */
export function chainRoot({ seed, model, adapter, cacheSalt, blockSize, unit }: ChainRootParts): ChainRoot {
  if (!Number.isInteger(blockSize) || blockSize < 1) throw new RangeError(`blockSize is ${blockSize}`);
  const names = field(seed) + field(model) + field(adapter) + field(cacheSalt);
  return hashOf(`espalier chain 1 ${unit} ${blockSize} ${names}`);
}

/** The length (in UTF-16 units) comes first, so that no field can run into the next one. */
const field = (value: string | undefined): string => (value === undefined ? "-" : `${value.length}:${value}`);
