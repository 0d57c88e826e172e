import { logUniform, ownRandom } from "../draws.ts";
import type { ScriptOf } from "../session-script.ts";

interface Range {
  readonly least: number;
  readonly most: number;
}

/** Lengths of which the logarithm is uniform. */
export interface LengthParameters {
  readonly inputTokens: Range;
  readonly outputTokens: Range;
}

/** Single requests that have nothing in common. */
export function lengthScripts({ inputTokens, outputTokens }: LengthParameters, seed: number): ScriptOf {
  return (request) => {
    const random = ownRandom(seed, request);
    const input = Math.round(logUniform(inputTokens, random));
    const output = Math.round(logUniform(outputTokens, random));
    return {
      turns: 1,
      expectedTokens: input + output,
      pauseMs: () => 0,
      write(_, conversation) {
        conversation.own(input);
        return output;
      },
    };
  };
}
