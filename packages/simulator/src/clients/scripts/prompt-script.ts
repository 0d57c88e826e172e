import { type BoundedLogNormal, logNormal, ownRandom } from "../draws.ts";
import type { ScriptOf } from "../session-script.ts";

/** Single requests, each behind one of a few beginnings. */
export interface PromptParameters {
  /** Beginnings, each as likely as the others. */
  readonly prompts: number;
  readonly sharedTokens: number;
  readonly ownTokens: BoundedLogNormal;
  readonly outputTokens: BoundedLogNormal;
}

/** Chats of one message behind system prompts: lengths are drawn, and nobody is told them before. */
export function promptScripts(parameters: PromptParameters, seed: number): ScriptOf {
  const { prompts, sharedTokens, ownTokens, outputTokens } = parameters;
  return (request) => {
    const random = ownRandom(seed, request);
    const prompt = random.integer(prompts);
    const own = Math.round(logNormal(ownTokens, random));
    const output = Math.round(logNormal(outputTokens, random));
    return {
      turns: 1,
      expectedTokens: sharedTokens + own + output,
      pauseMs: () => 0,
      write(_, conversation) {
        conversation.share(prompt, sharedTokens);
        conversation.own(own);
        return output;
      },
    };
  };
}
