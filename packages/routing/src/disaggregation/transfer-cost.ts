import { DecayedRegression, type Moments } from "@espalier/core";

/** The time to transfer the KV blocks of a prompt from one engine to another. */
export interface TransferCost {
  /** Expected milliseconds for this many tokens. */
  ms(tokens: number): number;
  readonly setupMs: number;
  readonly msPerToken: number;
  /** Learns from one transfer; ignores numbers that are negative or not finite. */
  observe(tokens: number, durationMs: number): void;
  /** The observations of this router, to be published. */
  observed(): TransferSums;
  /** Call when the observations of peers have changed. */
  refit(): void;
}

export interface TransferCostOptions {
  /** Fixed cost of a transfer, until something is learned. */
  readonly setupMs: number;
  readonly msPerToken: number;
}

/**
 * 20 ms: a handshake and the first step of the decode engine. 0.013 ms: 128 KiB of KV per token (an 8B model with 8 KV
 * heads in 16 bits) over 10 GB/s.
 */
export const defaultTransferCost: TransferCostOptions = { setupMs: 20, msPerToken: 0.013 };

/** Each observation leaves earlier ones this share of their weight: about the last 50 count. */
const memory = 0.98;
/** Weight of the prior, in transfers of no tokens and of `priorSpanTokens`. */
const priorDecay = { first: 2, kept: 0.95, least: 0.02 };
const priorSpanTokens = 8_192;
/** All peers together count for at most this many transfers, so that own observations soon outweigh them. */
export const maxPeerTransfers = 16;
/** Outliers are clipped to this factor of the expected time. */
const outlierFactor = 4;

/**
 * Fits a line to the times of transfers, by least squares with exponential forgetting. The prior keeps a little weight:
 * transfers of one size alone would leave the slope undetermined.
 *
 * @param others the observations of peers; none by default
 */
export function createTransferCost(
  { setupMs, msPerToken }: TransferCostOptions = defaultTransferCost,
  others: () => TransferSums = () => noTransfers,
): TransferCost {
  const regression = new DecayedRegression([setupMs, msPerToken], memory, priorDecay);
  const { coefficients, matrix, right } = regression;
  const farMs = setupMs + msPerToken * priorSpanTokens;
  /** Transfers of no tokens and of `priorSpanTokens`, so many of each. */
  const priorOf = (count: number): Moments => ({
    matrix: [2 * count, count * priorSpanTokens, count * priorSpanTokens, count * priorSpanTokens ** 2],
    right: [count * (setupMs + farMs), count * priorSpanTokens * farMs],
  });
  const predict = (tokens: number): number => regression.value([1, Math.max(0, tokens)]);

  const fit = (): void => {
    const { weight, tokens, ms, squareTokens, tokenMs } = others();
    const sums = { matrix: [weight, tokens, tokens, squareTokens], right: [ms, tokenMs], weight };
    const peers = { sums, own: 1, reported: Math.min(1, maxPeerTransfers / Math.max(least, weight)) };
    regression.solve(priorOf(regression.priorWeight(peers)), peers);
  };

  return {
    ms: predict,
    get setupMs() {
      return coefficients[0]!;
    },
    get msPerToken() {
      return coefficients[1]!;
    },
    observe(tokens, durationMs) {
      if (!(tokens >= 0 && durationMs >= 0 && Number.isFinite(tokens + durationMs))) return;
      const expected = predict(tokens);
      const value = Math.min(expected * outlierFactor, Math.max(expected / outlierFactor, durationMs));
      regression.add({ features: [1, tokens], value, weight: 1 });
      regression.weakenPrior();
      fit();
    },
    observed: () => ({
      weight: matrix[0]!,
      tokens: matrix[1]!,
      ms: right[0]!,
      squareTokens: matrix[3]!,
      tokenMs: right[1]!,
    }),
    refit: fit,
  };
}

const least = 1e-9;

/** Decayed sums over the transfers that a router has seen. Sums of several routers add up to one fit. */
export interface TransferSums {
  /** Number of transfers. */
  readonly weight: number;
  /** Tokens transferred. */
  readonly tokens: number;
  /** Milliseconds they took. */
  readonly ms: number;
  /** Sum of tokens squared. */
  readonly squareTokens: number;
  /** Sum of tokens times milliseconds. */
  readonly tokenMs: number;
}

export const noTransfers: TransferSums = { weight: 0, tokens: 0, ms: 0, squareTokens: 0, tokenMs: 0 };

/** Adds up sums, each multiplied by its share. */
export function addTransfers(all: Iterable<{ readonly sums: TransferSums; readonly share: number }>): TransferSums {
  const total = { ...noTransfers };
  for (const { sums, share } of all) {
    for (const name of names) total[name] += share * sums[name];
  }
  return total;
}

/**
 * Checks that sums are possible: no more transfers than a router remembers, none over 100 s or 100 million tokens, and
 * squares that are consistent with their sums.
 */
export function isPlausibleTransfers(sums: TransferSums): boolean {
  const { weight, tokens, ms, squareTokens } = sums;
  return (
    names.every((name) => sums[name] >= 0 && sums[name] < Number.POSITIVE_INFINITY) &&
    weight <= maxWeight &&
    ms <= weight * longestMs &&
    squareTokens <= weight * mostTokens ** 2 &&
    tokens ** 2 <= weight * squareTokens * (1 + rounding) &&
    sums.tokenMs <= mostTokens * ms
  );
}

const names = ["weight", "tokens", "ms", "squareTokens", "tokenMs"] as const;
/** With the decay of `memory`, an endless series of transfers weighs 50. */
const maxWeight = 51;
/** Longest time that a reported transfer may claim. */
const longestMs = 100_000;
/** Most tokens that a reported transfer may claim. */
const mostTokens = 1e8;
const rounding = 1e-6;
