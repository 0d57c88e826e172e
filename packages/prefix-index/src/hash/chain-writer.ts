import type { BlockTarget } from "./block-run.ts";
import type { Hash64 } from "./hash64.ts";
import { type HashKernel, kernelMemory } from "./kernel-memory.ts";

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
