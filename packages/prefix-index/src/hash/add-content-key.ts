import { hashKernel } from "./hash-kernel.ts";
import { hashOf } from "./hash-of.ts";
import { kernelMemory } from "./kernel-memory.ts";

const { contentsAt, chainAt, valueAt } = kernelMemory;

/**
 * Mixes an extra key into the digest of one block, in place: the identifier of an image whose placeholder tokens the
 * block holds, say. Every key makes another digest, the empty one included; of several keys the order counts.
 *
 * @param contents digests, two words each, the low one first
 * @param block whose digest to change, from 0
 * @throws RangeError when `contents` has no such block
 */
export function addContentKey(contents: Uint32Array, block: number, key: string): void {
  if (!Number.isInteger(block) || block < 0 || 2 * block + 1 >= contents.length) {
    throw new RangeError(`there is no block ${block} in ${contents.length} words`);
  }
  const { low, high } = hashOf(key);
  const { words, mixContents } = hashKernel();
  words[valueAt / 4] = contents[2 * block]!;
  words[valueAt / 4 + 1] = contents[2 * block + 1]!;
  words[contentsAt / 4] = low;
  words[contentsAt / 4 + 1] = high;
  mixContents(1);
  contents[2 * block] = words[chainAt / 4]!;
  contents[2 * block + 1] = words[chainAt / 4 + 1]!;
}
