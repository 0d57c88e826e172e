import { kernelBytes } from "./kernel-bytes.ts";

/** The layout of the kernel's memory; `kernel.wat` has the same numbers. */
export const kernelMemory = { textAt: 256, zerosBehind: 64, nodeBytes: 16, pageBytes: 65_536 } as const;

const { textAt, zerosBehind, nodeBytes, pageBytes } = kernelMemory;

/** Results of `scan` other than a number of nodes. */
export const scanFault = { invalid: -1, tooDeep: -2, noMemory: -3 } as const;

/** The memory of this process's kernel, with the nodes of the text scanned last. */
export interface NodeMemory {
  kernel: Kernel;
  owner: NodeOwner | undefined;
  words: Uint32Array;
  bytes: Uint8Array;
  /** The same bytes. */
  buffer: Buffer;
  /** Byte offset of the copy of the text in which strings are unescaped. */
  textsAt: number;
  /** Word offset of the first node. */
  nodesAt: number;
  count: number;
  /** Byte offset just after the last node. */
  freeAt: number;
}

/** A text whose nodes may be in the kernel's memory. */
interface NodeOwner {
  readonly bytes: Uint8Array;
}

const wordBytes = 4;
/** Largest nesting depth that the kernel can count to. */
const maxDepthOfKernel = 0x7fff_ffff;
/** A kernel whose memory grows beyond this for one body is replaced afterwards: WebAssembly memory never shrinks. */
const keptBytes = 16 * 1_048_576;

const noNodes = new Uint32Array(0);

const memory: NodeMemory = {
  kernel: undefined as never,
  owner: undefined,
  words: noNodes,
  bytes: new Uint8Array(0),
  buffer: Buffer.alloc(0),
  textsAt: 0,
  nodesAt: 0,
  count: 0,
  freeAt: 0,
};

/** Loads a text's nodes into the memory and returns the result of the kernel's `scan`. */
export function loadNodes(owner: NodeOwner, maxDepth: number): number {
  const { length } = owner.bytes;
  memory.owner = undefined;
  if (memory.words === noNodes || memory.bytes.length > Math.max(keptBytes, 4 * length)) replaceKernel();
  const shift = length + zerosBehind;
  const nodesAt = Math.ceil((textAt + 2 * shift) / nodeBytes) * nodeBytes;
  if (!growTo(nodesAt)) return scanFault.noMemory;
  memory.bytes.set(owner.bytes, textAt);
  memory.bytes.fill(0, textAt + length, textAt + shift);
  const count = memory.kernel.scan(length, shift, nodesAt, Math.min(maxDepth, maxDepthOfKernel));
  if (memory.words.buffer !== memory.kernel.memory.buffer) refreshViews();
  if (count <= 0) return count;
  memory.textsAt = textAt + shift;
  memory.nodesAt = nodesAt / wordBytes;
  memory.count = count;
  memory.freeAt = nodesAt + count * nodeBytes;
  memory.owner = owner;
  return count;
}

/** The memory with a text's nodes. Scans the text again if another one has been scanned since. */
export function nodesOf(owner: NodeOwner): NodeMemory {
  if (memory.owner !== owner) loadNodes(owner, maxDepthOfKernel);
  return memory;
}

/** Whether the text scanned last may have a key `__proto__`. */
export const hasSuspectKey = (): boolean => memory.kernel.isSuspect.value !== 0;

/** Grows the memory to at least `bytes`. @throws RangeError when it cannot grow */
export function reserveBytes(bytes: number): void {
  if (!growTo(bytes)) throw new RangeError(`a body needs ${bytes} bytes of memory`);
}

function growTo(bytes: number): boolean {
  const missing = bytes - memory.bytes.length;
  if (missing <= 0) return true;
  try {
    memory.kernel.memory.grow(Math.ceil(missing / pageBytes));
  } catch {
    return false;
  }
  refreshViews();
  return true;
}

function replaceKernel(): void {
  memory.kernel = createKernel();
  refreshViews();
}

function refreshViews(): void {
  const { buffer } = memory.kernel.memory;
  memory.words = new Uint32Array(buffer);
  memory.bytes = new Uint8Array(buffer);
  memory.buffer = Buffer.from(buffer);
}

/** The functions of `kernel.wat`. Addresses and sizes are in bytes. */
interface Kernel {
  readonly memory: { readonly buffer: ArrayBuffer; grow(pages: number): number };
  readonly isSuspect: { readonly value: number };
  readonly scan: (bytes: number, shift: number, nodes: number, maxDepth: number) => number;
}

/** The used part of the WebAssembly global, which the types of Node.js lack. */
interface WebAssemblyGlobal {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: unknown };
}

let compiled: object | undefined;

/**
 * A kernel with a memory of its own. Once compiled, creating one takes about 50 us.
 *
 * @throws Error where WebAssembly is switched off; Node's HTTP client needs it too
 */
function createKernel(): Kernel {
  const api = (globalThis as { readonly WebAssembly?: WebAssemblyGlobal }).WebAssembly;
  if (api === undefined) throw new Error("WebAssembly is disabled in this process");
  compiled ??= new api.Module(Buffer.from(kernelBytes, "base64"));
  return new api.Instance(compiled).exports as Kernel;
}
