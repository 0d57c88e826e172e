import { type CounterSeries, type GaugeSeries, Histogram, type HistogramSeries, type Metric } from "@espalier/core";
import type { MetricInfo } from "./metrics.ts";

/** Longest label value kept, in UTF-16 code units. Names of models can come from a client. */
const maxLabelLength = 200;

/** The value of every label in the series shared by label sets past the limit. */
const overflowLabel = "other";

interface FamilyOptions<Series> {
  readonly info: MetricInfo;
  /** Maximum label sets, not counting the shared one. */
  readonly maxSeries: number;
  readonly createCell: () => Cell<Series>;
  /** Called for every lookup of a label set past the limit. */
  readonly onOverflow: () => void;
}

/** One line of the exposition, in the shape that prom-client's registry prints. */
interface ExposedValue {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

export interface Family<Series> {
  readonly metric: Metric<Series>;
  values(): ExposedValue[];
}

interface LabelledCell<Series> {
  readonly labels: Readonly<Record<string, string>>;
  readonly cell: Cell<Series>;
}

/** A metric with all its series, bounded in their number. Without labels its one series exists from the start. */
export function createFamily<Series>(options: FamilyOptions<Series>): Family<Series> {
  const { info, maxSeries, createCell, onOverflow } = options;
  const cells = new Map<string, LabelledCell<Series>>();
  const overflowLabels = info.labels.map(() => overflowLabel);
  const overflowKey = keyOf(overflowLabels);

  const add = (key: string, values: readonly string[]): Series => {
    const cell = createCell();
    cells.set(key, { labels: Object.fromEntries(info.labels.map((name, at) => [name, shorten(values[at]!)])), cell });
    return cell.series;
  };
  const isFull = (): boolean => cells.size - (cells.has(overflowKey) ? 1 : 0) >= maxSeries;
  const keyOfChecked = (values: readonly string[]): string => {
    if (values.length === info.labels.length) return keyOf(values);
    throw new TypeError(`${info.name} takes ${info.labels.length} label values, not ${values.length}`);
  };
  if (info.labels.length === 0) add(overflowKey, []);

  return {
    metric: {
      series(...values) {
        const key = keyOfChecked(values);
        const known = cells.get(key);
        if (known) return known.cell.series;
        if (key === overflowKey || !isFull()) return add(key, values);
        onOverflow();
        return cells.get(overflowKey)?.cell.series ?? add(overflowKey, overflowLabels);
      },
      forget(label, value) {
        for (const [key, { labels }] of cells) if (labels[label] === shorten(value)) cells.delete(key);
      },
    },
    values: () => [...cells.values()].flatMap((labelled) => expose(info.name, labelled)),
  };
}

function expose<Series>(name: string, { labels, cell }: LabelledCell<Series>): ExposedValue[] {
  return cell.samples().map(({ suffix, le, value }) => ({
    metricName: name + suffix,
    labels: le === undefined ? labels : { ...labels, le },
    value,
  }));
}

function shorten(value: string): string {
  return value.length <= maxLabelLength ? value : value.slice(0, maxLabelLength);
}

/** Lengths precede the values, so that no two label sets share a key, whatever characters they contain. */
function keyOf(values: readonly string[]): string {
  let key = "";
  for (const value of values) {
    const kept = shorten(value);
    key += `${kept.length}:${kept}`;
  }
  return key;
}

/** One line of the exposition, still without its label set. */
interface Sample {
  /** Appended to the metric's name: "", "_bucket", "_sum" or "_count". */
  readonly suffix: string;
  /** Upper bound of a histogram's bucket. */
  readonly le?: number | "+Inf";
  readonly value: number;
}

/**
 * The numbers of one series. They are not in prom-client's own metrics, because those rebuild and look up a string of
 * all labels at every update (214 to 290 ns). The exposition reads them on request.
 */
export interface Cell<Series> {
  readonly series: Series;
  samples(): readonly Sample[];
}

/** @param refuse called for every value that is not a finite number of at least 0; the value is skipped */
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

/** @param refuse called for every value that is not a finite number; the value is skipped */
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
 * @param refuse called for every value that is not a finite number; the value is skipped
 */
export function createHistogramCell(buckets: readonly number[], refuse: () => void): Cell<HistogramSeries> {
  const histogram = new Histogram(buckets);
  return {
    series: {
      observe(value) {
        if (Number.isFinite(value)) histogram.observe(value);
        else refuse();
      },
    },
    samples() {
      const counts = histogram.cumulative();
      return [
        ...counts.map((value, at): Sample => ({ suffix: "_bucket", le: buckets[at] ?? "+Inf", value })),
        { suffix: "_sum", value: histogram.sum },
        { suffix: "_count", value: counts.at(-1)! },
      ];
    },
  };
}
