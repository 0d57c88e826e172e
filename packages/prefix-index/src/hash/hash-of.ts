import type { Hash64 } from "./hash64.ts";
import { createTextHasher, type TextHasher } from "./text-hasher.ts";

let shared: TextHasher | undefined;

/**
 * The hash of one content, the same in every process. A string counts as its UTF-8, in which a surrogate without its
 * other half is U+FFFD.
 *
 * @throws Error when the processor is not little-endian
 */
export function hashOf(content: string | Uint8Array): Hash64 {
  shared ??= createTextHasher();
  shared.reset();
  shared.update(content);
  return { low: shared.low, high: shared.high };
}
