import { createKernel, type Kernel, kernelMemory, scanFault } from "./kernel.ts";

/** A text whose nodes may be in the kernel's memory. */
export interface NodeOwner {
  readonly bytes: Uint8Array;
}

/** The memory of this process's kernel, and whose nodes are in it: those of the text that was scanned last. */
export interface NodeMemory {
  kernel: Kernel;
  owner: NodeOwner | undefined;
  words: Uint32Array;
  bytes: Uint8Array;
  /** The same bytes. */
  buffer: Buffer;
  /** Where the text would begin, were its strings what they stand for, in bytes. */
  textsAt: number;
  /** Of the first node, in words. */
  nodesAt: number;
  count: number;
  /** Behind the last node, in bytes. */
  freeAt: number;
}

const { textAt, zerosBehind, nodeBytes, pageBytes } = kernelMemory;
const wordBytes = 4;
const maxDepthOfKernel = 0x7fff_ffff;
/** A kernel whose memory has grown beyond this for one body is let go of after it. WebAssembly memory never shrinks. */
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

/** Puts a text's nodes into the memory, and returns what the kernel's `scan` does. */
export function loadNodes(owner: NodeOwner, maxDepth: number): number {
  const { length } = owner.bytes;
  memory.owner = undefined;
  if (memory.words === noNodes || memory.bytes.length > Math.max(keptBytes, 4 * length)) renew();
  const shift = length + zerosBehind;
  const nodesAt = Math.ceil((textAt + 2 * shift) / nodeBytes) * nodeBytes;
  if (!hasRoom(nodesAt)) return scanFault.noMemory;
  memory.bytes.set(owner.bytes, textAt);
  memory.bytes.fill(0, textAt + length, textAt + shift);
  const count = memory.kernel.scan(length, shift, nodesAt, Math.min(maxDepth, maxDepthOfKernel));
  if (memory.words.buffer !== memory.kernel.memory.buffer) look();
  if (count <= 0) return count;
  memory.textsAt = textAt + shift;
  memory.nodesAt = nodesAt / wordBytes;
  memory.count = count;
  memory.freeAt = nodesAt + count * nodeBytes;
  memory.owner = owner;
  return count;
}

/** The memory with a text's nodes in it, which are found again if another text has been scanned since. */
export function nodesOf(owner: NodeOwner): NodeMemory {
  if (memory.owner !== owner) loadNodes(owner, maxDepthOfKernel);
  return memory;
}

/** Sees to it that the memory has so many bytes. @throws RangeError when there is no more to be had */
export function makeRoom(bytes: number): void {
  if (!hasRoom(bytes)) throw new RangeError(`a body needs ${bytes} bytes of memory`);
}

function hasRoom(bytes: number): boolean {
  const missing = bytes - memory.bytes.length;
  if (missing <= 0) return true;
  try {
    memory.kernel.memory.grow(Math.ceil(missing / pageBytes));
  } catch {
    return false;
  }
  look();
  return true;
}

function renew(): void {
  memory.kernel = createKernel();
  look();
}

function look(): void {
  const { buffer } = memory.kernel.memory;
  memory.words = new Uint32Array(buffer);
  memory.bytes = new Uint8Array(buffer);
  memory.buffer = Buffer.from(buffer);
}

/** Whether the text that was scanned last may have a key `__proto__`. */
export const hasSuspectKey = (): boolean => memory.kernel.isSuspect.value !== 0;
