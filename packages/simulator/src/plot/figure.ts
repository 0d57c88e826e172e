import type { ScaleKind } from "./scale.ts";

/** A place in a panel, in the panel's own units. */
export interface PlotPoint {
  readonly x: number;
  readonly y: number;
  /** How far the value spreads there, drawn as a band around the line. */
  readonly low?: number;
  readonly high?: number;
}

/** One line. Lines of one name look alike in all panels. */
export interface PlotLine {
  readonly name: string;
  /** In order of x. Points without a place on their axes, such as NaN, break the line. */
  readonly points: readonly PlotPoint[];
}

export interface PlotAxis {
  /** With the unit. */
  readonly label: string;
  /** Linear unless given. */
  readonly kind?: ScaleKind;
  /** Where a linear axis begins, if not at its lowest value. */
  readonly from?: number;
  /** The values that are marked, in place of round ones. */
  readonly marks?: readonly number[];
}

/** One chart of a figure. */
export interface PlotPanel {
  readonly title: string;
  readonly x: PlotAxis;
  readonly y: PlotAxis;
  readonly lines: readonly PlotLine[];
}

/** Small multiples with one legend. */
export interface Figure {
  readonly title: string;
  /** What is to be seen, for those who do not see it. */
  readonly description: string;
  readonly panels: readonly PlotPanel[];
  /** Panels beside each other; 2 unless given. */
  readonly columns?: number;
}

export const maxPanels = 24;
/** As many as there are looks of lines. */
export const maxLineNames = 24;
export const maxLinePoints = 2_000;
