import type { FleetSums } from "./fleet-sums.ts";
import type { FitSums } from "./least-squares.ts";

/** How fast answers go on after their first token, learned from those that ended, here and at other routers. */
export class AnswerPace {
  readonly #fleet: FleetSums | undefined;
  #sumMs = 0;
  #answers = 0;

  /** @param fleet what other routers know; left out where there are none */
  constructor(fleet?: FleetSums) {
    this.#fleet = fleet;
  }

  /** 0 until something is known. */
  get msPerToken(): number {
    const fleet = this.#fleet;
    const others = fleet?.merged?.answers;
    if (!fleet || !others) return this.#answers > 0 ? this.#sumMs / this.#answers : 0;
    const { own, told } = fleet.left;
    const answers = own * this.#answers + told * others.weight;
    return answers > 0 ? (own * this.#sumMs + told * others.right[0]!) / answers : 0;
  }

  /** Of the answers that were seen here: a fit of one number. */
  get sums(): FitSums {
    return { matrix: [this.#answers], right: [this.#sumMs], weight: this.#answers };
  }

  /** @param tokens of the answer, the first one too */
  observe(tokens: number, elapsedMs: number): void {
    if (!(tokens > 1 && elapsedMs >= 0)) return;
    const expectedMs = this.msPerToken;
    const ms = elapsedMs / (tokens - 1);
    const kept = memory ** (1 + (this.#fleet?.routers ?? 0));
    this.#answers = this.#answers * kept + 1;
    // An answer that is far off moves it no further than any other.
    this.#sumMs = this.#sumMs * kept + (expectedMs > 0 ? Math.min(ms, outlierBound * expectedMs) : ms);
  }
}

/** Fifty answers later one counts by a third. */
const memory = 0.98;
const outlierBound = 3;

/** What an answer is taken to be long when the client sets no bound, in tokens. */
export const usualOutputTokens = 256;

/**
 * How long the answers to a request are expected to be together, in tokens, by what a router knows when it comes: the
 * client's own bound, `max_tokens`, which few answers reach; else what is usual.
 *
 * @param request.choices answers wanted, 1 when left out
 */
export function expectedOutputTokens({
  maxOutputTokens = usualOutputTokens,
  choices = 1,
}: {
  readonly maxOutputTokens?: number | undefined;
  readonly choices?: number;
}): number {
  return maxOutputTokens * choices;
}
