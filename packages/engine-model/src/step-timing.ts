import type { Sequence } from "./sequence.ts";
import { isDecode } from "./sequence.ts";
import type { EngineParameters } from "./types.ts";

/** How long the planned step takes, in milliseconds; the formula stands at `EngineParameters`. */
export function stepDurationMs<Seat>(sequences: readonly Sequence<Seat>[], parameters: EngineParameters): number {
  let prefillTokens = 0;
  let attentionPairs = 0;
  let decodes = 0;
  let decodeContext = 0;
  for (let at = 0; at < sequences.length; at++) {
    const sequence = sequences[at]!;
    const tokens = sequence.stepTokens;
    if (tokens === 0) continue;
    const computed = sequence.computedTokens;
    if (isDecode(sequence)) {
      decodes++;
      decodeContext += computed + 1;
    } else {
      prefillTokens += tokens;
      attentionPairs += tokens * computed + (tokens * (tokens + 1)) / 2;
    }
  }
  return (
    parameters.stepBaseMs +
    parameters.prefillMsPerToken * prefillTokens +
    parameters.attentionMsPerTokenPair * attentionPairs +
    parameters.decodeMsPerSequence * decodes +
    parameters.decodeMsPerContextToken * decodeContext
  );
}
