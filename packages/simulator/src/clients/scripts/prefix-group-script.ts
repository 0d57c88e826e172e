import { ownRandom } from "../draws.ts";
import type { ScriptOf } from "../session-script.ts";

export interface PrefixGroupParameters {
  readonly groups: number;
  readonly prefixTokens: number;
  readonly ownTokens: number;
  readonly outputTokens: number;
}

/**
 * Single requests behind one of several long prefixes.
 *
 * @param groupOf the group of a request; drawn uniformly when absent
 */
export function prefixGroupScripts(
  { groups, prefixTokens, ownTokens, outputTokens }: PrefixGroupParameters,
  seed: number,
  groupOf = (request: number): number => ownRandom(seed, request).integer(groups),
): ScriptOf {
  return (request) => ({
    turns: 1,
    expectedTokens: prefixTokens + ownTokens + outputTokens,
    pauseMs: () => 0,
    write(_, conversation) {
      conversation.share(groupOf(request), prefixTokens);
      conversation.own(ownTokens);
      return outputTokens;
    },
  });
}
