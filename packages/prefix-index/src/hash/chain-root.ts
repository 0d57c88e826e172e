import { hashOf } from "./hash-of.ts";
import type { Hash64 } from "./hash64.ts";

/** What sets chains apart from the start. Chains of different roots share no hash. */
export interface ChainRootParts {
  /** The same in every router of a fleet. */
  readonly seed: string;
  readonly model?: string | undefined;
  /** The name of a LoRA adapter. */
  readonly adapter?: string | undefined;
  readonly cacheSalt?: string | undefined;
  /** In units: tokens, or bytes of text. */
  readonly blockSize: number;
  readonly unit: "tokens" | "bytes";
}

/** The parent of the first block of a chain. */
export type ChainRoot = Hash64;

/**
 * The root of all chains over blocks of this kind. It is the same in every process and on every machine. An absent part
 * differs from an empty one. It takes about a microsecond: callers with few different roots keep them.
 *
 * @throws RangeError when the block size is not a positive whole number
 */
export function chainRoot({ seed, model, adapter, cacheSalt, blockSize, unit }: ChainRootParts): ChainRoot {
  if (!Number.isInteger(blockSize) || blockSize < 1) throw new RangeError(`blockSize is ${blockSize}`);
  const names = field(seed) + field(model) + field(adapter) + field(cacheSalt);
  return hashOf(`espalier chain 1 ${unit} ${blockSize} ${names}`);
}

/** With the length in front (in UTF-16 units), so that no field can run into the next one. */
const field = (value: string | undefined): string => (value === undefined ? "-" : `${value.length}:${value}`);
