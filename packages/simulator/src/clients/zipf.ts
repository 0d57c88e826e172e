import type { Random } from "@espalier/common";

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
