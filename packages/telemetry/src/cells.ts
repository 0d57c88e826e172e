import type { CounterSeries, GaugeSeries, HistogramSeries } from "@espalier/common";

/** One line of the exposition, still without its label set. */
interface Sample {
  /** Appended to the metric's name: "", "_bucket", "_sum" or "_count". */
  readonly suffix: string;
  /** Upper bound of a histogram's bucket. */
  readonly le?: number | "+Inf";
  readonly value: number;
}

/**
 * The numbers of one series. They live here and not in prom-client's own metrics, because those rebuild and look up
 * a string of all labels at every update (214 to 290 ns); the exposition reads them out when it is asked for.
 */
export interface Cell<Series> {
  readonly series: Series;
  samples(): readonly Sample[];
}

/** @param refuse told of every value that is not a finite number of at least 0, which is then left out */
export function createCounterCell(refuse: () => void): Cell<CounterSeries> {
  let total = 0;
  return {
    series: {
      add(amount = 1) {
        if (amount >= 0 && amount < Infinity) total += amount;
        else refuse();
      },
    },
    samples: () => [{ suffix: "", value: total }],
  };
}

/** @param refuse told of every value that is not a finite number, which is then left out */
export function createGaugeCell(refuse: () => void): Cell<GaugeSeries> {
  let current = 0;
  return {
    series: {
      set(value) {
        if (Number.isFinite(value)) current = value;
        else refuse();
      },
    },
    samples: () => [{ suffix: "", value: current }],
  };
}

/**
 * @param buckets upper bounds, ascending; a value equal to a bound counts into its bucket
 * @param refuse told of every value that is not a finite number, which is then left out
 */
export function createHistogramCell(buckets: readonly number[], refuse: () => void): Cell<HistogramSeries> {
  const bounds = Float64Array.from(buckets);
  const counts = new Float64Array(bounds.length + 1);
  let sum = 0;
  return {
    series: {
      observe(value) {
        if (!Number.isFinite(value)) return refuse();
        let at = 0;
        while (at < bounds.length && value > bounds[at]!) at++;
        counts[at]! += 1;
        sum += value;
      },
    },
    samples() {
      let count = 0;
      const samples: Sample[] = [];
      for (const [at, le] of buckets.entries()) {
        count += counts[at]!;
        samples.push({ suffix: "_bucket", le, value: count });
      }
      count += counts[bounds.length]!;
      samples.push({ suffix: "_bucket", le: "+Inf", value: count });
      samples.push({ suffix: "_sum", value: sum }, { suffix: "_count", value: count });
      return samples;
    },
  };
}
