import { Histogram } from "@espalier/core";
import type { CacheFlavour, RequestReport } from "@espalier/engine-model";

/** Why a request ended, as the engines' metrics name it. */
type OutcomeReason = "stop" | "length" | "abort";

/** Counters and histograms of the metrics page, in addition to the model's statistics. Seconds are engine time. */
export type EngineTallies = ReturnType<typeof createEngineTallies>;

export function createEngineTallies(flavour: CacheFlavour) {
  const { firstToken, interToken, endToEnd, queue } = bounds[flavour];
  const timeToFirstTokenSeconds = new Histogram(firstToken);
  const interTokenLatencySeconds = new Histogram(interToken);
  const endToEndSeconds = new Histogram(endToEnd);
  const queueSeconds = new Histogram(queue);
  const outcomes: Record<OutcomeReason, number> = { stop: 0, length: 0, abort: 0 };
  let poolingTokens = 0;
  return {
    timeToFirstTokenSeconds,
    interTokenLatencySeconds,
    endToEndSeconds,
    queueSeconds,
    outcomes,
    /**
     * Tokens of requests that only prefill (embeddings, scores). The model generates one for each; a real engine
     * generates none.
     */
    get poolingTokens() {
      return poolingTokens;
    },
    /** One token of a request; `previousMs` is the time of its token before, NaN for the first one. */
    token(timeMs: number, previousMs: number, pooling: boolean): void {
      if (pooling) poolingTokens++;
      else if (!Number.isNaN(previousMs)) interTokenLatencySeconds.observe((timeMs - previousMs) / 1000);
    },
    finished(report: RequestReport, reason: OutcomeReason): void {
      outcomes[reason]++;
      if (reason === "abort") return;
      timeToFirstTokenSeconds.observe((report.firstTokenMs - report.arrivedMs) / 1000);
      endToEndSeconds.observe((report.finishedMs - report.arrivedMs) / 1000);
      queueSeconds.observe((report.scheduledMs - report.arrivedMs) / 1000);
    },
  };
}

/** Upper bounds in seconds, as vLLM 0.32 and SGLang 0.5.23 export them. */
const bounds = {
  vllm: {
    firstToken: [
      0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
    ],
    interToken: [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80],
    endToEnd: [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680],
    queue: [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680],
  },
  sglang: {
    firstToken: [0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400],
    interToken: [
      0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1,
      2, 4, 6, 8,
    ],
    endToEnd: [0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400],
    queue: [
      0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300,
      400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000,
    ],
  },
} as const;
