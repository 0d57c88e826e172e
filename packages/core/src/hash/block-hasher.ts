import { type HashKernel, hashKernel, type KernelName, kernelMemory } from "./hash-kernel.ts";
import type { Hash64 } from "./text-hasher.ts";

const { inputBytes } = kernelMemory;
const tokenBytes = 4;

/**
 * Hashes runs of blocks. A block's content digest depends only on its bytes. Its chain hash depends on the previous
 * chain hash and the digest, so on the whole prefix. All functions are synchronous, process full blocks only, and
 * return how many they hashed. None allocates in proportion to its input. They throw a RangeError if a block size or
 * range is out of bounds, or an array is too short.
 */
export interface BlockHasher {
  readonly kernel: KernelName;
  hashTokens(run: TokenRun): number;
  hashBytes(run: ByteRun): number;
  hashText(run: TextRun): number;
  /** Mixes known contents into a chain, as when a subtree gets its parent afterwards. */
  mixContents(run: ContentRun): number;
}

/**
 * Creates a hasher; one serves a whole process.
 *
 * @param options.kernel by default `wasm`, or `js` if WebAssembly is disabled
 * @throws Error if the processor is not little-endian, or if `wasm` is requested and WebAssembly is disabled
 * @example
 * const chain = new Uint32Array(2 * Math.floor(tokens.length / 16));
 * const blocks = createBlockHasher().hashTokens({ tokens, blockSize: 16, parent: root, chain });
 */
export function createBlockHasher(options: { readonly kernel?: KernelName } = {}): BlockHasher {
  const kernel = hashKernel(options.kernel);
  const writer = createChainWriter(kernel);
  const hashTokens = tokenHashing(kernel, writer);
  const hashBytes = byteHashing(kernel, writer);
  const hashText = textHashing(kernel, writer);
  return {
    kernel: kernel.name,
    hashTokens,
    hashBytes,
    hashText,
    mixContents({ parent, contents, blocks, chain }) {
      requireCount("blocks", blocks, contents.length >> 1);
      const count = Math.min(blocks, chain.length >> 1);
      writer.begin(parent);
      writer.mixContents(contents, count, chain);
      return count;
    },
  };
}

/**
 * Where a chain starts and where its hashes go, two words per block, low word first. The length of `chain` bounds the
 * work: blocks that do not fit are not hashed.
 */
export interface ChainTarget {
  /** The hash of the prefix before the first block: that of the previous block, or the root. */
  readonly parent: Hash64;
  readonly chain: Uint32Array;
}

/** A chain, and optionally an array for the blocks' own digests, as long as `chain`. */
export interface BlockTarget extends ChainTarget {
  readonly contents?: Uint32Array | undefined;
}

/** Tokens from `start` (default 0) to `end` (default the length), `blockSize` (1 to 4,096) per block. */
export interface TokenRun extends BlockTarget {
  readonly tokens: Uint32Array;
  readonly start?: number;
  readonly end?: number;
  readonly blockSize: number;
}

/** Bytes from `start` (default 0) to `end` (default the length), `blockBytes` (1 to 16,384) per block. */
export interface ByteRun extends BlockTarget {
  readonly bytes: Uint8Array;
  readonly start?: number;
  readonly end?: number;
  readonly blockBytes: number;
}

/** The UTF-8 of a text, `blockBytes` (1 to 16,384) per block. An unpaired surrogate counts as U+FFFD. */
export interface TextRun extends BlockTarget {
  readonly text: string;
  readonly blockBytes: number;
}

/** Known digests of blocks, two words each. */
export interface ContentRun extends ChainTarget {
  readonly contents: Uint32Array;
  /** Number of digests to mix. */
  readonly blocks: number;
}

/** The longest block, in bytes: 4,096 tokens. */
export const maxBlockBytes = 16_384;

function tokenHashing(kernel: HashKernel, writer: ChainWriter): BlockHasher["hashTokens"] {
  const input = kernel.words.subarray(0, inputBytes / tokenBytes);
  return (run) => {
    const { tokens, start = 0, end = tokens.length, blockSize } = run;
    requireBlockBytes("blockSize", blockSize, tokenBytes);
    requireRange(start, end, tokens.length);
    const count = Math.min(Math.floor((end - start) / blockSize), roomOf(run));
    const perSlice = Math.floor(input.length / blockSize);
    writer.begin(run.parent);
    for (let done = 0; done < count; done += perSlice) {
      const blocks = Math.min(count - done, perSlice);
      const from = start + done * blockSize;
      copyWords(tokens, from, from + blocks * blockSize, input);
      writer.hashBlocks(0, blockSize * tokenBytes, blocks, run, done);
    }
    return count;
  };
}

function byteHashing(kernel: HashKernel, writer: ChainWriter): BlockHasher["hashBytes"] {
  const input = kernel.bytes.subarray(0, inputBytes);
  return (run) => {
    const { bytes, start = 0, end = bytes.length, blockBytes } = run;
    requireBlockBytes("blockBytes", blockBytes, 1);
    requireRange(start, end, bytes.length);
    const count = Math.min(Math.floor((end - start) / blockBytes), roomOf(run));
    const perSlice = Math.floor(input.length / blockBytes);
    writer.begin(run.parent);
    for (let done = 0; done < count; done += perSlice) {
      const blocks = Math.min(count - done, perSlice);
      const from = start + done * blockBytes;
      input.set(bytes.subarray(from, from + blocks * blockBytes));
      writer.hashBlocks(0, blockBytes, blocks, run, done);
    }
    return count;
  };
}

function textHashing(kernel: HashKernel, writer: ChainWriter): BlockHasher["hashText"] {
  const input = kernel.bytes.subarray(0, inputBytes);
  const encoder = new TextEncoder();
  return (run) => {
    const { text, blockBytes } = run;
    requireBlockBytes("blockBytes", blockBytes, 1);
    const room = roomOf(run);
    writer.begin(run.parent);
    let done = 0;
    /** Bytes of a block that the end of the previous slice cut off. */
    let carried = 0;
    for (let at = 0; at < text.length && done < room; ) {
      const { read, written } = encoder.encodeInto(
        at === 0 ? text : text.slice(at),
        carried === 0 ? input : input.subarray(carried),
      );
      at += read;
      const filled = carried + written;
      const blocks = Math.min(Math.floor(filled / blockBytes), room - done);
      writer.hashBlocks(0, blockBytes, blocks, run, done);
      done += blocks;
      carried = filled - blocks * blockBytes;
      input.copyWithin(0, filled - carried, filled);
    }
    return done;
  };
}

/** Fewer words than this are copied one by one, which is faster than creating a view. */
const minViewWords = 64;

function copyWords(from: Uint32Array, start: number, end: number, to: Uint32Array): void {
  if (end - start < minViewWords) {
    for (let word = start; word < end; word++) to[word - start] = from[word]!;
  } else {
    to.set(start === 0 && end === from.length ? from : from.subarray(start, end));
  }
}

/** How many blocks fit into a target. */
function roomOf({ chain, contents }: BlockTarget): number {
  if (contents !== undefined && contents.length < chain.length) {
    throw new RangeError(`contents has ${contents.length} words, chain ${chain.length}`);
  }
  return chain.length >> 1;
}

function requireBlockBytes(name: string, size: number, unitBytes: number): void {
  if (Number.isInteger(size) && size >= 1 && size * unitBytes <= maxBlockBytes) return;
  throw new RangeError(`${name} must be a whole number from 1 to ${maxBlockBytes / unitBytes}, and is ${size}`);
}

function requireRange(start: number, end: number, length: number): void {
  if (Number.isInteger(start) && Number.isInteger(end) && start >= 0 && start <= end && end <= length) return;
  throw new RangeError(`the range from ${start} to ${end} is not within ${length}`);
}

function requireCount(name: string, count: number, most: number): void {
  if (Number.isInteger(count) && count >= 0 && count <= most) return;
  throw new RangeError(`${name} must be a whole number up to ${most}, and is ${count}`);
}

const { contentsAt, chainAt, valueAt, maxBlocks } = kernelMemory;
const hashBytes = 8;

/** Moves hashes between a kernel's memory and the arrays of callers. */
export type ChainWriter = ReturnType<typeof createChainWriter>;

/** @param kernel its memory is read through one cached view per number of blocks, so that copying does not allocate */
export function createChainWriter(kernel: HashKernel) {
  const { words } = kernel;
  const contentWindow = windowsFrom(kernel.memory, contentsAt);
  const chainWindow = windowsFrom(kernel.memory, chainAt);
  return {
    /** Starts a chain after `parent`. */
    begin({ low, high }: Hash64): void {
      words[valueAt / 4] = low;
      words[valueAt / 4 + 1] = high;
    },
    /** Hashes `count` blocks of the input from `at`, and writes them after the first `done` blocks of the target. */
    hashBlocks(at: number, blockBytes: number, count: number, { chain, contents }: BlockTarget, done: number): void {
      for (let first = 0; first < count; first += maxBlocks) {
        const blocks = Math.min(count - first, maxBlocks);
        kernel.hashBlocks(at + first * blockBytes, blockBytes, blocks);
        chain.set(chainWindow(blocks), 2 * (done + first));
        contents?.set(contentWindow(blocks), 2 * (done + first));
      }
    },
    /** Mixes `count` of the given contents into the chain. */
    mixContents(contents: Uint32Array, count: number, chain: Uint32Array): void {
      for (let first = 0; first < count; first += maxBlocks) {
        const blocks = Math.min(count - first, maxBlocks);
        words.set(contents.subarray(2 * first, 2 * (first + blocks)), contentsAt / 4);
        kernel.mixContents(blocks);
        chain.set(chainWindow(blocks), 2 * first);
      }
    },
  };
}

/** Views of the first 0 to `maxBlocks` hashes at a position in memory, each created on first use. */
function windowsFrom(memory: ArrayBuffer, at: number): (blocks: number) => Uint32Array {
  const windows: (Uint32Array | undefined)[] = new Array(maxBlocks + 1).fill(undefined);
  return (blocks) => {
    let window = windows[blocks];
    if (window === undefined) {
      window = new Uint32Array(memory, at, (blocks * hashBytes) / Uint32Array.BYTES_PER_ELEMENT);
      windows[blocks] = window;
    }
    return window;
  };
}
