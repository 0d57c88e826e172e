import { ownRandom } from "../draws.ts";
import type { ScriptOf } from "../session-script.ts";
import { createZipf } from "../zipf.ts";

export interface AdapterParameters {
  readonly adapters: number;
  /** Adapter r is asked for with a probability that goes with 1 / r^zipf. */
  readonly zipf: number;
  /** The beginning that all prompts for one adapter have in common. */
  readonly sharedTokens: number;
  readonly ownTokens: number;
  readonly outputTokens: number;
}

/** Single requests, each for one of many LoRA adapters. */
export function adapterScripts(parameters: AdapterParameters, seed: number): ScriptOf {
  const { adapters, sharedTokens, ownTokens, outputTokens } = parameters;
  const zipf = createZipf({ count: adapters, exponent: parameters.zipf });
  return (request) => {
    const rank = zipf.draw(ownRandom(seed, request));
    return {
      turns: 1,
      adapter: `adapter-${rank}`,
      expectedTokens: sharedTokens + ownTokens + outputTokens,
      pauseMs: () => 0,
      write(_, conversation) {
        conversation.share(rank, sharedTokens);
        conversation.own(ownTokens);
        return outputTokens;
      },
    };
  };
}
