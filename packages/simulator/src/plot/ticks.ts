/** A mark of an axis. */
export interface Tick {
  readonly value: number;
  readonly label: string;
}

const steps = [1, 2, 5, 10] as const;
/** Lets a value that is a step but for rounding count as one. */
const tolerance = 1e-9;

/**
 * Round values between two bounds, both included, 1, 2 or 5 times a power of ten apart.
 *
 * @param wanted at most so many and one more, at least 1
 */
export function linearTicks(min: number, max: number, wanted: number): readonly Tick[] {
  const raw = (max - min) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * (steps.find((one) => one * power >= raw * (1 - tolerance)) ?? 10);
  const from = Math.ceil(min / step - tolerance);
  const to = Math.floor(max / step + tolerance);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + tolerance));
  return Array.from({ length: to - from + 1 }, (_, at) => {
    const value = (from + at) * step;
    return { value, label: group(value.toFixed(digits)) };
  });
}

/**
 * Marks of a logarithmic axis: powers of ten, and 2 and 5 times those where there is room for them.
 *
 * @param min above 0
 * @param wanted powers of ten are skipped rather than giving many more than this
 */
export function logTicks(min: number, max: number, wanted: number): readonly Tick[] {
  const whole = Math.ceil(Math.log10(max) - tolerance) - Math.floor(Math.log10(min) + tolerance);
  const factors = whole * 3 <= wanted ? [1, 2, 5] : [1];
  const from = factors.length > 1 ? Math.floor(Math.log10(min) + tolerance) : Math.ceil(Math.log10(min) - tolerance);
  const to = Math.floor(Math.log10(max) + tolerance);
  const stride = Math.max(1, Math.ceil((to - from) / wanted));
  const ticks: Tick[] = [];
  for (let power = from; power <= to; power += stride) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value < min * (1 - tolerance) || value > max * (1 + tolerance)) continue;
      ticks.push({ value, label: group(value.toFixed(Math.max(0, -power))) });
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(min, max, wanted);
}

/** Digits before the point in threes. */
export function group(digits: string): string {
  const [whole = "", rest] = digits.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}
