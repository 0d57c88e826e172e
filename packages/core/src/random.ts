import { mixWord } from "./fnv.ts";
/** The port for randomness. Seeded in tests and in the simulator. */
export interface Random {
  /** A float in [0, 1) with 32 random bits. */
  float(): number;
  /** An integer in [0, bound). `bound` is a positive integer up to 2^32. */
  integer(bound: number): number;
}

/**
 * A seeded xoshiro128** generator (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021).
 * The same seed gives the same sequence in every process.
 *
 * @param seed any number; its low 32 bits are expanded with splitmix32
 */
export function createSeededRandom(seed: number): Random {
  let mixed = seed >>> 0;
  const splitmix = (): number => {
    mixed = (mixed + 0x9e3779b9) | 0;
    return mixWord(mixed) | 0;
  };
  let a = splitmix();
  let b = splitmix();
  let c = splitmix();
  let d = splitmix();
  const next = (): number => {
    const scrambled = Math.imul(rotateLeft(Math.imul(b, 5), 7), 9);
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = rotateLeft(d, 11);
    return scrambled >>> 0;
  };
  return {
    float: () => next() / 0x1_0000_0000,
    integer: (bound) => Math.floor((next() / 0x1_0000_0000) * bound),
  };
}

function rotateLeft(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

/** Unseeded randomness of the running process. */
export const systemRandom: Random = {
  float: () => Math.random(),
  integer: (bound) => Math.floor(Math.random() * bound),
};

export interface BackoffOptions {
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
}

/**
 * Delay before retry number `attempt` (0 for the first): exponential with full jitter between half and all of the
 * doubled delay (Brooker, "Exponential Backoff and Jitter", 2015).
 *
 * @returns milliseconds, at most `maxDelayMs`
 */
export function backoffDelayMs(attempt: number, options: BackoffOptions, random: Random): number {
  const ceilingMs = Math.min(options.maxDelayMs, options.firstDelayMs * 2 ** Math.min(attempt, 30));
  return ceilingMs * (0.5 + 0.5 * random.float());
}
