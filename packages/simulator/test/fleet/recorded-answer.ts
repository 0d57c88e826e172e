import type { AnswerObserver } from "../../src/fleet/sim-engine.ts";

/** What one answer came to, in words and in order. */
export interface RecordedAnswer extends AnswerObserver {
  readonly heard: readonly string[];
  readonly tokens: number;
  readonly cachedTokens: number;
}

export function recordedAnswer(): RecordedAnswer {
  const heard: string[] = [];
  let tokens = 0;
  let cachedTokens = Number.NaN;
  return {
    heard,
    get tokens() {
      return tokens;
    },
    get cachedTokens() {
      return cachedTokens;
    },
    firstToken() {
      tokens++;
      heard.push("first");
    },
    progress(more) {
      tokens += more;
    },
    finished(report) {
      cachedTokens = report.cachedTokens;
      heard.push("finished");
    },
    lost: () => heard.push("lost"),
  };
}
