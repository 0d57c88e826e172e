import { EspalierError, type Scheduler } from "@espalier/common";
import { wait } from "../wait.ts";

export interface WatchOptions {
  readonly periodMs: number;
  /** Ends it. */
  readonly signal: AbortSignal;
  /** What to show now. An EspalierError that it throws is shown in its place, and it goes on. */
  readonly look: () => Promise<string>;
  readonly scheduler?: Scheduler;
  readonly output?: { readonly isTTY?: boolean; write(text: string): unknown };
}

/** From the top left corner, with nothing below. */
const clearScreen = "\u001b[H\u001b[J";

/** Shows the same view again and again: on a terminal in its place, else one below the other. */
export async function watch(options: WatchOptions): Promise<void> {
  const { periodMs, signal, look, scheduler, output = process.stdout } = options;
  while (!signal.aborted) {
    const text = await look().catch((error: unknown) => {
      if (error instanceof EspalierError) return error.message;
      throw error;
    });
    if (signal.aborted) return;
    output.write(`${output.isTTY ? clearScreen : ""}${text}\n`);
    await wait(periodMs, signal, scheduler);
  }
}
