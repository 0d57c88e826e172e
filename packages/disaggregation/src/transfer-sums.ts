/** What a router has seen of transfers, later ones counting more: enough to fit a line to those of several routers at once. */
export interface TransferSums {
  /** Transfers. */
  readonly weight: number;
  /** Their tokens. */
  readonly tokens: number;
  /** What they took. */
  readonly ms: number;
  /** Tokens by themselves. */
  readonly squareTokens: number;
  /** Tokens by milliseconds. */
  readonly tokenMs: number;
}

export const noTransfers: TransferSums = { weight: 0, tokens: 0, ms: 0, squareTokens: 0, tokenMs: 0 };

/** Adds the sums up, each times its share. */
export function addTransfers(all: Iterable<{ readonly sums: TransferSums; readonly share: number }>): TransferSums {
  const total = { ...noTransfers };
  for (const { sums, share } of all) {
    for (const name of names) total[name] += share * sums[name];
  }
  return total;
}

/**
 * Whether they can be so: no more than a router remembers, none longer than 100 s or of more than 100 million tokens, and
 * squares that go with their sums.
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
/** What is remembered of endless transfers is as good as fifty. */
const maxWeight = 51;
const longestMs = 100_000;
const mostTokens = 1e8;
const rounding = 1e-6;
