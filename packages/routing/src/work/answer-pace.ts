import { DecayedRegression, type SampleSums } from "@espalier/core";
import type { FleetSums } from "./fleet-sums.ts";
import { outlierBound } from "./sample-error.ts";

/** Time per output token after the first, learned from completed answers, here and at other routers. */
export class AnswerPace {
  readonly #fleet: FleetSums | undefined;
  readonly #own = new DecayedRegression([0], memory);

  /** @param fleet what other routers know; absent if there are none */
  constructor(fleet?: FleetSums) {
    this.#fleet = fleet;
  }

  /** 0 until known. */
  get msPerToken(): number {
    return this.#own.solve(noPrior, this.#fleet?.peerSamples("answers"))[0]!;
  }

  /** Sums of the answers seen here. */
  get sums(): SampleSums {
    return this.#own;
  }

  /** @param tokens tokens of the answer, including the first */
  observe(tokens: number, elapsedMs: number): void {
    if (!(tokens > 1 && elapsedMs >= 0)) return;
    const expectedMs = this.msPerToken;
    const ms = elapsedMs / (tokens - 1);
    // An outlier moves the mean no further than any other answer.
    const value = expectedMs > 0 ? Math.min(ms, outlierBound * expectedMs) : ms;
    this.#own.add({ features: [1], value, weight: 1 }, this.#fleet?.routers);
  }
}

/** After fifty more answers an answer counts by a third. */
const memory = 0.98;
const noPrior = { matrix: [0], right: [0] };

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
