import { type Clock, systemClock } from "@espalier/core";

/** Only results go to standard output, so that they can be piped. */
export function writeResult(text: string): void {
  process.stdout.write(text.endsWith("\n") ? text : `${text}\n`);
}

/** One JSON value, on standard output. */
export function writeJson(value: unknown): void {
  writeResult(JSON.stringify(value, null, 2));
}

/** Everything except the result: progress and errors. */
export function writeNote(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** A share as a percentage, for a column of a table. */
export const percentOf = (share: number | null | undefined): number | undefined =>
  share === null || share === undefined ? undefined : share * 100;

/** A whole number with commas between its thousands. */
export const groupDigits = (count: number): string => count.toLocaleString("en");

interface ProgressOutput {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

const barWidth = 24;
const redrawEveryMs = 100;
const lineEveryMs = 10_000;

/**
 * Shows the progress of a long task: on a terminal as a bar that is redrawn, else as a line now and then.
 *
 * @param total the final value of `done`; 0 shows no share
 */
export function createProgressBar(
  title: string,
  total: number,
  output: ProgressOutput = process.stderr,
  clock: Clock = systemClock,
) {
  const startMs = clock.nowMs();
  const everyMs = output.isTTY ? redrawEveryMs : lineEveryMs;
  let drawnMs = Number.NEGATIVE_INFINITY;
  let last = "";
  let drawn = "";

  const compose = (done: number, note: string): string => {
    const elapsedS = ((clock.nowMs() - startMs) / 1_000).toFixed(0);
    if (total === 0) return `${title} ${done}  ${elapsedS} s  ${note}`;
    const filled = Math.round(Math.min(1, done / total) * barWidth);
    const bar = `${"█".repeat(filled)}${"░".repeat(barWidth - filled)}`;
    return `${title} ${bar} ${done}/${total}  ${elapsedS} s  ${note}`;
  };
  const draw = (): void => {
    drawn = last;
    drawnMs = clock.nowMs();
    if (output.isTTY) output.write(`\r${last.slice(0, (output.columns ?? 80) - 1)}\u001b[K`);
    else output.write(`${last}\n`);
  };
  return {
    /** @param note text to the right of the bar */
    update(done: number, note: string): void {
      last = compose(done, note);
      if (clock.nowMs() - drawnMs >= everyMs || done === total) draw();
    },
    /** Shows the last state, unless it is already shown. */
    end(): void {
      if (drawn !== last) draw();
      if (output.isTTY && last !== "") output.write("\n");
    },
  };
}
