import type { FleetSums } from "./fleet-sums.ts";
import type { FitSums } from "./least-squares.ts";

/** Time per output token after the first, learned from completed answers, here and at other routers. */
export class AnswerPace {
  readonly #fleet: FleetSums | undefined;
  #sumMs = 0;
  #answers = 0;

  /** @param fleet what other routers know; absent if there are none */
  constructor(fleet?: FleetSums) {
    this.#fleet = fleet;
  }

  /** 0 until known. */
  get msPerToken(): number {
    const fleet = this.#fleet;
    const others = fleet?.merged?.answers;
    if (!fleet || !others) return this.#answers > 0 ? this.#sumMs / this.#answers : 0;
    const { own, reported } = fleet.left;
    const answers = own * this.#answers + reported * others.weight;
    return answers > 0 ? (own * this.#sumMs + reported * others.right[0]!) / answers : 0;
  }

  /** Sums of the answers seen here, for a fit of one number. */
  get sums(): FitSums {
    return { matrix: [this.#answers], right: [this.#sumMs], weight: this.#answers };
  }

  /** @param tokens tokens of the answer, including the first */
  observe(tokens: number, elapsedMs: number): void {
    if (!(tokens > 1 && elapsedMs >= 0)) return;
    const expectedMs = this.msPerToken;
    const ms = elapsedMs / (tokens - 1);
    const kept = memory ** (1 + (this.#fleet?.routers ?? 0));
    this.#answers = this.#answers * kept + 1;
    // An outlier moves the mean no further than any other answer.
    this.#sumMs = this.#sumMs * kept + (expectedMs > 0 ? Math.min(ms, outlierBound * expectedMs) : ms);
  }
}

/** After fifty more answers an answer counts by a third. */
const memory = 0.98;
const outlierBound = 3;

/** Assumed length of an answer in tokens if the client sets no bound. */
export const usualOutputTokens = 256;

/**
 * Expected total length of the answers to a request, in tokens, when it arrives: the client's own bound, `max_tokens`,
 * which few answers reach; otherwise the default.
 *
 * @param request.choices number of answers, 1 by default
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
