/** One figure of one part, and its target. */
export interface FigureRow {
  readonly part: PartName;
  /** Includes the unit. */
  readonly figure: string;
  readonly value: number;
  readonly target?: Target;
}

export type Target = { readonly most: number } | { readonly least: number };

export const partNames = ["restart", "kill", "overload"] as const;

export type PartName = (typeof partNames)[number];

/** The result of one part of the benchmark. */
export interface PartResult {
  readonly rows: readonly FigureRow[];
  /** Parameters of the measurement. */
  readonly params: Readonly<Record<string, number | string | boolean>>;
  /** Failures; only the first are listed. */
  readonly wrong: readonly string[];
}

/** @returns undefined for a figure without a target; a figure that could not be measured misses its target */
export function isMet({ value, target }: FigureRow): boolean | undefined {
  if (!target) return undefined;
  return "most" in target ? value <= target.most : value >= target.least;
}
