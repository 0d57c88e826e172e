import { group, linearTicks, logTicks, type Tick } from "./ticks.ts";

export type ScaleKind = "linear" | "log";

/** Places values on an axis. */
export interface Scale {
  readonly ticks: readonly Tick[];
  /** Pixels; NaN for what has no place, such as 0 on a logarithmic axis. */
  place(value: number): number;
}

export interface ScaleOptions {
  readonly kind: ScaleKind;
  /** Every value that is to be placed, or at least the extremes. Those without a place are left out of account. */
  readonly values: Iterable<number>;
  /** Pixels of the lowest and of the highest value. */
  readonly range: readonly [number, number];
  readonly wantedTicks: number;
  /** A linear axis begins here, whatever the values are. */
  readonly from?: number;
  /** Marks in place of round values. */
  readonly marks?: readonly number[];
}

/** Room that a logarithmic axis has around a lone value: this factor to both sides. */
const loneFactor = 2;

export function createScale({ kind, values, range, wantedTicks, from, marks }: ScaleOptions): Scale {
  const isLog = kind === "log";
  const hasPlace = (value: number): boolean => Number.isFinite(value) && (!isLog || value > 0);
  const [min, max] = domainOf([...values].filter(hasPlace), isLog, from);
  const toUnit = isLog
    ? (value: number) => Math.log(value / min) / Math.log(max / min)
    : (value: number) => (value - min) / (max - min);
  const ticks = marks
    ? marks.filter((mark) => hasPlace(mark) && mark >= min && mark <= max).map(asTick)
    : isLog
      ? logTicks(min, max, wantedTicks)
      : linearTicks(min, max, wantedTicks);
  return {
    ticks,
    place: (value) => (hasPlace(value) ? range[0] + (range[1] - range[0]) * toUnit(value) : Number.NaN),
  };
}

/** Never empty: a lone value gets room around it, and no value the unit. */
function domainOf(values: readonly number[], isLog: boolean, from: number | undefined): readonly [number, number] {
  let min = from !== undefined && !isLog ? from : Number.POSITIVE_INFINITY;
  let max = min === Number.POSITIVE_INFINITY ? Number.NEGATIVE_INFINITY : min;
  for (const value of values) {
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  if (min > max) return isLog ? [0.1, 1] : [0, 1];
  if (max > min) return [min, max];
  if (isLog) return [min / loneFactor, max * loneFactor];
  const room = Math.abs(min) / 2 || 1;
  return [from === undefined ? min - room : min, max + room];
}

const asTick = (value: number): Tick => ({ value, label: group(String(value)) });
