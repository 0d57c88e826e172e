/** One figure of one part, and what it should be. */
export interface FigureRow {
  readonly part: PartName;
  /** Its unit is in the name. */
  readonly figure: string;
  readonly value: number;
  readonly target?: Target;
}

export type Target = { readonly most: number } | { readonly least: number };

export const partNames = ["restart", "kill", "overload"] as const;

export type PartName = (typeof partNames)[number];

/** What a part of the benchmark gives. */
export interface PartResult {
  readonly rows: readonly FigureRow[];
  /** What it was measured with. */
  readonly params: Readonly<Record<string, number | string | boolean>>;
  /** What went wrong, of which the first are told. */
  readonly wrong: readonly string[];
}

/** @returns undefined for a figure without a target; one that could not be measured misses it */
export function isMet({ value, target }: FigureRow): boolean | undefined {
  if (!target) return undefined;
  return "most" in target ? value <= target.most : value >= target.least;
}
