/** The definition of the hashes word for word, with 64-bit integers and no care for speed. */
const bits64 = (1n << 64n) - 1n;

/** The first eight odd round constants of SHA-512: 64 bits of the fractional parts of the cube roots of primes. */
export const roundConstants: readonly bigint[] = (() => {
  const found: bigint[] = [];
  for (let prime = 2n; found.length < 8; prime = nextPrime(prime)) {
    const constant = cubeRoot(prime << 192n) & bits64;
    if (constant & 1n) found.push(constant);
  }
  return found;
})();

const K = (index: number): bigint => roundConstants[index] ?? 0n;

const fold = (value: bigint): bigint => value ^ (value >> 32n);
const times = (value: bigint, factor: bigint): bigint => (value * factor) & bits64;

/** The digest of a block or of any other content. */
export function naiveDigest(bytes: Uint8Array): bigint {
  const lanes = [0n, 0n, 0n, 0n];
  for (let at = 0; at < bytes.length; at += 8) {
    let word = 0n;
    for (let index = 0; index < 8; index++) word |= BigInt(bytes[at + index] ?? 0) << BigInt(8 * index);
    const lane = (at / 8) % 4;
    lanes[lane] = times(fold((lanes[lane] ?? 0n) ^ word), K(lane));
  }
  let hash = times(BigInt(bytes.length + 1), K(7));
  for (const lane of lanes) hash = (hash + lane) & bits64;
  return fold(times(fold(times(fold(hash), K(4))), K(5)));
}

/** The chain hash after `parent` and a content. */
export function naiveMix(parent: bigint, content: bigint): bigint {
  const rotated = ((parent << 32n) | (parent >> 32n)) & bits64;
  return fold(times(rotated ^ content, K(6)));
}

/** Digests and chain of all full blocks. */
export function naiveBlocks(bytes: Uint8Array, blockBytes: number, parent: bigint) {
  const contents: bigint[] = [];
  const chain: bigint[] = [];
  let hash = parent;
  for (let at = 0; at + blockBytes <= bytes.length; at += blockBytes) {
    const content = naiveDigest(bytes.subarray(at, at + blockBytes));
    hash = naiveMix(hash, content);
    contents.push(content);
    chain.push(hash);
  }
  return { contents, chain };
}

/** Hash words as integers. */
export const wordsToIntegers = (words: Uint32Array): bigint[] =>
  Array.from({ length: words.length / 2 }, (_, index) =>
    toInteger({ low: words[2 * index], high: words[2 * index + 1] }),
  );

export const toInteger = ({ low = 0, high = 0 }: { low?: number | undefined; high?: number | undefined }): bigint =>
  (BigInt(high) << 32n) | BigInt(low);

export const fromInteger = (value: bigint): { low: number; high: number } => ({
  low: Number(value & 0xffff_ffffn),
  high: Number(value >> 32n),
});

function nextPrime(after: bigint): bigint {
  for (let candidate = after + 1n; ; candidate++) {
    let divisor = 2n;
    while (divisor * divisor <= candidate && candidate % divisor !== 0n) divisor++;
    if (divisor * divisor > candidate) return candidate;
  }
}

function cubeRoot(value: bigint): bigint {
  let low = 0n;
  let high = 1n << 80n;
  while (low < high) {
    const middle = (low + high + 1n) / 2n;
    if (middle ** 3n <= value) low = middle;
    else high = middle - 1n;
  }
  return low;
}
