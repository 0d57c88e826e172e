import { exponential, geometric, ownRandom } from "../draws.ts";
import type { ScriptOf } from "../session-script.ts";

export interface ChatParameters {
  /** Sessions take turns in the groups of a shared beginning; 0 for none. */
  readonly groups: number;
  readonly sharedTokens: number;
  /** Share of the sessions that have the beginning of a group. */
  readonly sharedShare: number;
  readonly firstTokens: number;
  readonly newTokens: number;
  readonly outputTokens: number;
  /** Follow-ups of a session: a fixed number, or a geometric one with that mean. */
  readonly followups: { readonly count: number } | { readonly mean: number };
  /** Mean of the exponential time before a follow-up, in milliseconds. */
  readonly thinkMeanMs: number;
  /** Whether the first message comes after such a time, too, so that people do not begin in step. */
  readonly thinksFirst: boolean;
}

export interface ChatOptions {
  readonly seed: number;
  readonly className?: string;
  /** How many sessions in a row are of one group, before the next group's turn; drawn uniformly when absent. */
  readonly groupSize?: number;
}

/** Conversations of people: message, answer, thought, message. */
export function chatScripts(parameters: ChatParameters, { seed, className, groupSize }: ChatOptions): ScriptOf {
  const { groups, sharedTokens, firstTokens, newTokens, outputTokens, followups, thinkMeanMs } = parameters;
  const named = className === undefined ? {} : { className };
  return (session) => {
    const random = ownRandom(seed, session);
    const turns = 1 + ("count" in followups ? followups.count : geometric(followups.mean, random));
    const isShared = groups > 0 && random.float() < parameters.sharedShare;
    const drawn = groups > 0 ? random.integer(groups) : 0;
    const group = groupSize === undefined ? drawn : Math.floor(session / groupSize) % groups;
    const beginning = isShared ? sharedTokens : 0;
    return {
      ...named,
      turns,
      expectedTokens: beginning + firstTokens + turns * outputTokens + (turns - 1) * newTokens,
      pauseMs: (turn) => (turn > 0 || parameters.thinksFirst ? exponential(thinkMeanMs, random) : 0),
      write(turn, conversation) {
        if (turn === 0) conversation.share(group, beginning);
        conversation.own(turn === 0 ? firstTokens : newTokens);
        return outputTokens;
      },
    };
  };
}
