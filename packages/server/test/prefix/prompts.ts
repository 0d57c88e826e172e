import {
  type BlockDigests,
  chainRoot,
  createBlockHasher,
  createHasherDigests,
  type JsonBody,
  scanBody,
} from "@espalier/core";
import type { PromptBlocks } from "@espalier/routing";

export const blockSize = 16;
const seed = "test";
const hasher = createBlockHasher();

export interface RootNames {
  readonly adapter?: string;
  readonly cacheSalt?: string;
}

const rootOf = ({ adapter, cacheSalt }: RootNames, unit: "tokens" | "bytes" = "tokens") =>
  chainRoot({ seed, adapter, cacheSalt, blockSize, unit });

/** The digests that a router of this block size has. */
export const digests: BlockDigests = createHasherDigests({
  hasher,
  root: (adapter, cacheSalt) =>
    rootOf({ ...(adapter === undefined ? {} : { adapter }), ...(cacheSalt === undefined ? {} : { cacheSalt }) }),
});

/** Tokens that differ from those of any other letter, and go on the same way whatever their number. */
export const tokensOf = (letter: string, count: number): Uint32Array =>
  Uint32Array.from({ length: count }, (_, at) => letter.charCodeAt(0) * 100_000 + at);

export const join = (...parts: readonly Uint32Array[]): Uint32Array =>
  Uint32Array.from(parts.flatMap((part) => [...part]));

/** A prompt of these tokens as the reader cuts it. */
export function promptOf(
  tokens: Uint32Array,
  { from = "tokens", ...names }: { readonly from?: PromptBlocks["from"] } & RootNames = {},
): PromptBlocks {
  const words = 2 * Math.floor(tokens.length / blockSize);
  const chain = new Uint32Array(words);
  const contents = new Uint32Array(words);
  const parent = rootOf(names, from === "bytes" ? "bytes" : "tokens");
  const blockCount = hasher.hashTokens({ tokens, blockSize, parent, chain, contents });
  return { chain, contents, blockCount, blockSize, tokens: tokens.length, from };
}

/** A request's body with these fields. */
export function bodyOf(fields: object): JsonBody {
  const body = scanBody(Buffer.from(JSON.stringify(fields)), 64);
  if (typeof body === "string") throw new Error(`the body is ${body}`);
  return body;
}
