import { createSeededRandom, type Random } from "@espalier/core";

/** Maximum redraws for a value outside the bounds; the last draw is clamped. */
const maxRedraws = 64;

/** A log-normal distribution, truncated to two bounds (inclusive). */
export interface BoundedLogNormal {
  readonly median: number;
  /** Standard deviation of the logarithm. */
  readonly sigma: number;
  readonly least: number;
  readonly most: number;
}

/** A log-normal distribution with the given mean, between a tenth of it and ten times it. */
export function logNormalOfMean(mean: number, sigma: number): BoundedLogNormal {
  return { median: mean / Math.exp(sigma ** 2 / 2), sigma, least: mean / 10, most: mean * 10 };
}

/** A random source for one session or request, so that its draws do not depend on the order of the others. */
export function ownRandom(seed: number, owner: number): Random {
  return createSeededRandom(Math.imul(owner + 1, 0x9e3779b1) ^ Math.imul(seed, 0x85ebca6b));
}

/** A draw from the exponential distribution. */
export function exponential(mean: number, random: Random): number {
  return -Math.log(1 - random.float()) * mean;
}

/** A draw from the geometric distribution on 0, 1, 2, ... with the given mean. */
export function geometric(mean: number, random: Random): number {
  const goesOn = mean / (1 + mean);
  const draw = 1 - random.float();
  return goesOn === 0 ? 0 : Math.floor(Math.log(draw) / Math.log(goesOn));
}

/** A log-uniform draw in [least, most). */
export function logUniform({ least, most }: Pick<BoundedLogNormal, "least" | "most">, random: Random): number {
  return least * (most / least) ** random.float();
}

/** Values outside the bounds are drawn again. */
export function logNormal({ median, sigma, least, most }: BoundedLogNormal, random: Random): number {
  let value = median;
  for (let redraw = 0; redraw <= maxRedraws; redraw++) {
    value = median * Math.exp(sigma * normal(random));
    if (value >= least && value <= most) return value;
  }
  return Math.min(most, Math.max(least, value));
}

/** Box and Muller, 1958. The polar form would need twice as many draws. */
function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random.float())) * Math.cos(2 * Math.PI * random.float());
}

/** Draws ranks from 0 up. The probability of rank r is proportional to 1 / (r + 1)^exponent. */
export interface Zipf {
  draw(random: Random): number;
}

/** @param options.count number of ranks, at least 1 */
export function createZipf({ count, exponent }: { readonly count: number; readonly exponent: number }): Zipf {
  const cumulative = new Float64Array(count);
  let sum = 0;
  for (let rank = 0; rank < count; rank++) {
    sum += (rank + 1) ** -exponent;
    cumulative[rank] = sum;
  }
  return {
    draw(random) {
      const drawn = random.float() * sum;
      let low = 0;
      let high = count - 1;
      while (low < high) {
        const middle = (low + high) >>> 1;
        if (cumulative[middle]! > drawn) high = middle;
        else low = middle + 1;
      }
      return low;
    },
  };
}

/** A seeded shuffle of the numbers below `count` (Fisher and Yates). */
export function shuffled(count: number, seed: number): Uint32Array {
  const random = createSeededRandom(seed);
  const order = Uint32Array.from({ length: count }, (_, at) => at);
  for (let at = count - 1; at > 0; at--) {
    const other = random.integer(at + 1);
    const moved = order[at]!;
    order[at] = order[other]!;
    order[other] = moved;
  }
  return order;
}
