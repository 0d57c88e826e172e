import { kernelBytes } from "./kernel-bytes.ts";

/** The arithmetic, with views of its whole memory. */
export interface HashKernel extends KernelArithmetic {
  readonly name: KernelName;
  readonly bytes: Uint8Array;
  readonly words: Uint32Array;
}

/** The arithmetic of `kernel.wat` over one memory. */
interface KernelArithmetic {
  readonly memory: ArrayBuffer;
  /** Digests `count` blocks of `blockBytes` from `at` into contents, and mixes them into a chain after `value`. */
  readonly hashBlocks: (at: number, blockBytes: number, count: number) => void;
  /** Mixes `count` contents into a chain after `value`. */
  readonly mixContents: (count: number) => void;
  /**
   * Adds the `bytes` from `at` to a stream: whole stripes of 32 go to its lanes, all bytes go to the digest in `value`.
   * `total` is the length of the stream so far.
   */
  readonly absorb: (at: number, bytes: number, total: number) => void;
}

/** Selects the arithmetic. Both give the same results; `js` is slower. */
export type KernelName = "wasm" | "js";

/**
 * Memory layout of kernels, in bytes; `kernel.wat` has the same numbers. Inputs of any length pass through it slice by
 * slice.
 */
export const kernelMemory = {
  inputBytes: 65_536,
  contentsAt: 65_536,
  chainAt: 98_304,
  valueAt: 131_072,
  lanesAt: 131_080,
  totalBytes: 196_608,
  /** Number of blocks whose contents and chain hashes fit. */
  maxBlocks: 4_096,
} as const;

const kernels = new Map<KernelName, HashKernel>();

/**
 * The kernel of this process. All users write their input and read their output within one synchronous call, so they
 * share one memory.
 *
 * @param name by default `wasm`, or `js` if WebAssembly is disabled
 * @throws Error if the processor is not little-endian, or if `wasm` is requested and WebAssembly is disabled
 */
export function hashKernel(name: KernelName = webAssembly() ? "wasm" : "js"): HashKernel {
  let kernel = kernels.get(name);
  if (kernel === undefined) {
    requireLittleEndian();
    const arithmetic = name === "wasm" ? createWasmKernel() : createJsKernel();
    const { memory } = arithmetic;
    kernel = { ...arithmetic, name, bytes: new Uint8Array(memory), words: new Uint32Array(memory) };
    kernels.set(name, kernel);
  }
  return kernel;
}

/**
 * Tokens and hashes are read as bytes and as words of the same memory. These agree only on little-endian processors
 * (all that Node.js supports except s390x and AIX).
 *
 * @param probe the number 1 in this processor's layout
 * @throws Error on another processor
 */
export function requireLittleEndian(probe: Uint8Array = new Uint8Array(Uint32Array.of(1).buffer)): void {
  if (probe[0] !== 1) throw new Error("Hashing requires a little-endian processor");
}

/** The used part of the global of the same name, which the types of Node.js do not declare. */
interface WebAssemblyGlobal {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: KernelExports };
}

type KernelExports = Omit<KernelArithmetic, "memory"> & { readonly memory: { readonly buffer: ArrayBuffer } };

/** The engine's WebAssembly; undefined if it is disabled (`node --jitless`). */
function webAssembly(): WebAssemblyGlobal | undefined {
  return (globalThis as unknown as { readonly WebAssembly?: WebAssemblyGlobal }).WebAssembly;
}

/**
 * Compiles the kernel, which takes well under a millisecond.
 *
 * @throws Error if WebAssembly is disabled
 */
function createWasmKernel(): KernelArithmetic {
  const api = webAssembly();
  if (api === undefined) throw new Error("WebAssembly is disabled in this process");
  const { exports } = new api.Instance(new api.Module(Buffer.from(kernelBytes, "base64")));
  const { memory, hashBlocks, mixContents, absorb } = exports;
  if (memory.buffer.byteLength !== kernelMemory.totalBytes) throw new Error("The kernel has another memory layout");
  return { memory: memory.buffer, hashBlocks, mixContents, absorb };
}

const { contentsAt, chainAt, valueAt, lanesAt, totalBytes } = kernelMemory;
const laneCount = 4;
const stripeBytes = 32;

/** A multiplier of `kernel.wat` in signed halves. */
interface Multiplier {
  readonly low: number;
  readonly high: number;
}

const multiplier = (high: number, low: number): Multiplier => ({ low: low | 0, high: high | 0 });

const laneMultipliers = [
  multiplier(0x71374491, 0x23ef65cd),
  multiplier(0xb5c0fbcf, 0xec4d3b2f),
  multiplier(0x59f111f1, 0xb605d019),
  multiplier(0x923f82a4, 0xaf194f9b),
] as const;
const firstFinish = multiplier(0x72be5d74, 0xf27b896f);
const secondFinish = multiplier(0x80deb1fe, 0x3b1696b1);
const chainMultiplier = multiplier(0x9bdc06a7, 0x25c71235);
const lengthMultiplier = multiplier(0xefbe4786, 0x384f25e3);

/** The arithmetic of `kernel.wat` in JavaScript, 32 bits at a time, over its own memory. */
function createJsKernel(): KernelArithmetic {
  const memory = new ArrayBuffer(totalBytes);
  const view = new DataView(memory);
  const words = new Int32Array(memory);
  const lanes = new Int32Array(2 * laneCount);
  const storedLanes = words.subarray(lanesAt / 4, lanesAt / 4 + 2 * laneCount);
  return {
    memory,
    hashBlocks(at, blockBytes, count) {
      for (let block = 0; block < count; block++) {
        const from = at + block * blockBytes;
        lanes.fill(0);
        takeIn(view, from, from + blockBytes, lanes);
        writeDigest(lanes, blockBytes, words, contentsAt / 4 + 2 * block);
      }
      mixChain(words, count);
    },
    mixContents: (count) => mixChain(words, count),
    absorb(at, bytes, total) {
      const stripeEnd = at + bytes - (bytes % stripeBytes);
      takeIn(view, at, stripeEnd, storedLanes);
      lanes.set(storedLanes);
      takeIn(view, stripeEnd, at + bytes, lanes);
      writeDigest(lanes, total, words, valueAt / 4);
    },
  };
}

/** Adds the bytes from `at` to `end` to the lanes: whole words, then the padded rest. */
function takeIn(view: DataView, at: number, end: number, lanes: Int32Array): void {
  for (let lane = 0; lane < laneCount; lane++) {
    const { low: multiplierLow, high: multiplierHigh } = laneMultipliers[lane]!;
    let low = lanes[2 * lane]!;
    let high = lanes[2 * lane + 1]!;
    let word = at + 8 * lane;
    for (; word + 8 <= end; word += stripeBytes) {
      high ^= view.getInt32(word + 4, true);
      low ^= view.getInt32(word, true) ^ high;
      high = productHigh(low, high, multiplierLow, multiplierHigh);
      low = Math.imul(low, multiplierLow);
    }
    if (word < end) {
      const left = end - word;
      high ^= view.getInt32(word + 4, true) & lowestBytes(left - 4);
      low ^= (view.getInt32(word, true) & (left >= 4 ? -1 : lowestBytes(left))) ^ high;
      high = productHigh(low, high, multiplierLow, multiplierHigh);
      low = Math.imul(low, multiplierLow);
    }
    lanes[2 * lane] = low;
    lanes[2 * lane + 1] = high;
  }
}

/** A mask of the lowest bytes of a word, three at most. */
const lowestBytes = (count: number): number => (count > 0 ? (1 << (8 * count)) - 1 : 0);

function writeDigest(lanes: Int32Array, lengthBytes: number, words: Int32Array, out: number): void {
  const lengthLow = (lengthBytes + 1) | 0;
  const lengthHigh = Math.floor((lengthBytes + 1) / 0x1_0000_0000);
  let low = Math.imul(lengthLow, lengthMultiplier.low);
  let high = productHigh(lengthLow, lengthHigh, lengthMultiplier.low, lengthMultiplier.high);
  for (let lane = 0; lane < laneCount; lane++) {
    const sum = (low + lanes[2 * lane]!) | 0;
    high = (high + lanes[2 * lane + 1]! + (sum >>> 0 < low >>> 0 ? 1 : 0)) | 0;
    low = sum;
  }
  low ^= high;
  high = productHigh(low, high, firstFinish.low, firstFinish.high);
  low = Math.imul(low, firstFinish.low) ^ high;
  high = productHigh(low, high, secondFinish.low, secondFinish.high);
  words[out] = Math.imul(low, secondFinish.low) ^ high;
  words[out + 1] = high;
}

function mixChain(words: Int32Array, count: number): void {
  let chainLow = words[valueAt / 4]!;
  let chainHigh = words[valueAt / 4 + 1]!;
  for (let at = 0; at < 2 * count; at += 2) {
    const low = chainHigh ^ words[contentsAt / 4 + at]!;
    const high = chainLow ^ words[contentsAt / 4 + at + 1]!;
    chainHigh = productHigh(low, high, chainMultiplier.low, chainMultiplier.high);
    chainLow = Math.imul(low, chainMultiplier.low) ^ chainHigh;
    words[chainAt / 4 + at] = chainLow;
    words[chainAt / 4 + at + 1] = chainHigh;
  }
  words[valueAt / 4] = chainLow;
  words[valueAt / 4 + 1] = chainHigh;
}

/** The high half of a product modulo 2^64; the low half is the product of the low halves. */
function productHigh(low: number, high: number, otherLow: number, otherHigh: number): number {
  const a0 = low & 0xffff;
  const a1 = low >>> 16;
  const b0 = otherLow & 0xffff;
  const b1 = otherLow >>> 16;
  const middle = (Math.imul(a1, b0) + (Math.imul(a0, b0) >>> 16)) | 0;
  const otherMiddle = (Math.imul(a0, b1) + (middle & 0xffff)) | 0;
  const carried = Math.imul(a1, b1) + (middle >>> 16) + (otherMiddle >>> 16);
  return (carried + Math.imul(low, otherHigh) + Math.imul(high, otherLow)) | 0;
}
