import { createSeededRandom, type Random } from "@espalier/common";

/** Draws outside the bounds that are repeated before the last one is moved to the nearer bound. */
const maxRedraws = 64;

/** A log-normal distribution between two bounds, both within it. */
export interface BoundedLogNormal {
  readonly median: number;
  /** Standard deviation of the logarithm. */
  readonly sigma: number;
  readonly least: number;
  readonly most: number;
}

/** A log-normal distribution with that mean, between a tenth of it and ten times as much. */
export function logNormalOfMean(mean: number, sigma: number): BoundedLogNormal {
  return { median: mean / Math.exp(sigma ** 2 / 2), sigma, least: mean / 10, most: mean * 10 };
}

/** A random source of one session or request, so that its draws do not depend on the order of others. */
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

/** A draw of which the logarithm is uniform, in [least, most). */
export function logUniform({ least, most }: Pick<BoundedLogNormal, "least" | "most">, random: Random): number {
  return least * (most / least) ** random.float();
}

/** What falls outside the bounds is drawn again. */
export function logNormal({ median, sigma, least, most }: BoundedLogNormal, random: Random): number {
  let value = median;
  for (let redraw = 0; redraw <= maxRedraws; redraw++) {
    value = median * Math.exp(sigma * normal(random));
    if (value >= least && value <= most) return value;
  }
  return Math.min(most, Math.max(least, value));
}

/** The polar form would draw twice as often for the same: Box and Muller, 1958. */
function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random.float())) * Math.cos(2 * Math.PI * random.float());
}

/** Draws ranks from 0 up; rank r is drawn with a probability that goes with 1 / (r + 1)^exponent. */
export interface Zipf {
  draw(random: Random): number;
}

/** @param options.count of ranks, at least 1 */
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

/** The numbers below `count` in an order drawn with the seed (Fisher and Yates). */
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
