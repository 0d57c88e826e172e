import { type HashKernel, hashKernel, type KernelName, kernelMemory } from "./hash-kernel.ts";
import type { Hash64 } from "./text-hasher.ts";

const { inputBytes } = kernelMemory;
const tokenBytes = 4;

/**
 * Hashes runs of blocks. A block's content digest depends on its bytes alone; its chain hash on the chain hash before it
 * and the digest, hence on the whole prefix. All functions are synchronous, take full blocks only, and return how many
 * they hashed; none allocates in proportion to its input. They throw a RangeError for a block size or a range out of
 * bounds, and for an array that is too short.
 */
export interface BlockHasher {
  readonly kernel: KernelName;
  hashTokens(run: TokenRun): number;
  hashBytes(run: ByteRun): number;
  hashText(run: TextRun): number;
  /** Mixes known contents into a chain, as when a subtree learns its parent after the fact. */
  mixContents(run: ContentRun): number;
}

/**
 * Makes a hasher; all of a process can share one.
 *
 * @param options.kernel by default `wasm`, or `js` where WebAssembly is switched off
 * @throws Error when the processor is not little-endian, or `wasm` is asked for and WebAssembly is switched off
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
 * Where a chain starts and where its hashes go, two words for each block, the low one first. The room in `chain` bounds
 * the work: blocks for which there is none are not hashed.
 */
export interface ChainTarget {
  /** The hash of the prefix before the first block: that of the block before it, or the root. */
  readonly parent: Hash64;
  readonly chain: Uint32Array;
}

/** A chain, and room for the digests of the blocks by themselves when they are wanted: as much as in `chain`. */
export interface BlockTarget extends ChainTarget {
  readonly contents?: Uint32Array | undefined;
}

/** Tokens from `start` (0) up to `end` (the length), `blockSize` (1 to 4,096) to a block. */
export interface TokenRun extends BlockTarget {
  readonly tokens: Uint32Array;
  readonly start?: number;
  readonly end?: number;
  readonly blockSize: number;
}

/** Bytes from `start` (0) up to `end` (the length), `blockBytes` (1 to 16,384) to a block. */
export interface ByteRun extends BlockTarget {
  readonly bytes: Uint8Array;
  readonly start?: number;
  readonly end?: number;
  readonly blockBytes: number;
}

/** The UTF-8 of a text, `blockBytes` (1 to 16,384) to a block. A surrogate without its other half counts as U+FFFD. */
export interface TextRun extends BlockTarget {
  readonly text: string;
  readonly blockBytes: number;
}

/** Digests of blocks that are known already, two words each. */
export interface ContentRun extends ChainTarget {
  readonly contents: Uint32Array;
  /** How many of them to mix. */
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
    /** Bytes of a block that the slice before has cut. */
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

/** Fewer words than this are copied one by one, which is quicker than making a view of them. */
const minViewWords = 64;

function copyWords(from: Uint32Array, start: number, end: number, to: Uint32Array): void {
  if (end - start < minViewWords) {
    for (let word = start; word < end; word++) to[word - start] = from[word]!;
  } else {
    to.set(start === 0 && end === from.length ? from : from.subarray(start, end));
  }
}

/** How many blocks a target has room for. */
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

/** Carries hashes between a kernel's memory and the arrays of callers. */
export interface ChainWriter {
  /** Starts a chain after `parent`. */
  begin(parent: Hash64): void;
  /** Hashes `count` blocks of the input that start at `at`, and writes them behind the `done` first ones of the target. */
  hashBlocks(at: number, blockBytes: number, count: number, target: BlockTarget, done: number): void;
  /** Mixes `count` of the given contents into the chain. */
  mixContents(contents: Uint32Array, count: number, chain: Uint32Array): void;
}

/** @param kernel in whose memory this keeps a window for each number of blocks, so as to copy without allocating */
export function createChainWriter(kernel: HashKernel): ChainWriter {
  const { words } = kernel;
  const contentWindow = windowsFrom(kernel.memory, contentsAt);
  const chainWindow = windowsFrom(kernel.memory, chainAt);
  return {
    begin({ low, high }) {
      words[valueAt / 4] = low;
      words[valueAt / 4 + 1] = high;
    },
    hashBlocks(at, blockBytes, count, { chain, contents }, done) {
      for (let first = 0; first < count; first += maxBlocks) {
        const blocks = Math.min(count - first, maxBlocks);
        kernel.hashBlocks(at + first * blockBytes, blockBytes, blocks);
        chain.set(chainWindow(blocks), 2 * (done + first));
        contents?.set(contentWindow(blocks), 2 * (done + first));
      }
    },
    mixContents(contents, count, chain) {
      for (let first = 0; first < count; first += maxBlocks) {
        const blocks = Math.min(count - first, maxBlocks);
        words.set(contents.subarray(2 * first, 2 * (first + blocks)), contentsAt / 4);
        kernel.mixContents(blocks);
        chain.set(chainWindow(blocks), 2 * first);
      }
    },
  };
}

/** Views of the first 0 to `maxBlocks` hashes at a place in memory, each made when it is first asked for. */
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
