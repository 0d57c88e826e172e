/** Hashes of blocks and of chains of blocks, in a WebAssembly kernel and in JavaScript, which agree in every bit. */
export { type BlockDigests, createHasherDigests } from "./block-digests.ts";
export { type BlockHasher, createBlockHasher } from "./block-hasher.ts";
export { chainRoot, createTextHasher, type Hash64, hashOf } from "./text-hasher.ts";
