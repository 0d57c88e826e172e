import type { Random } from "@espalier/common";
import { type BoundedLogNormal, exponential, geometric, logNormal, ownRandom } from "../draws.ts";
import type { ScriptOf } from "../session-script.ts";

export interface ToolClusterParameters {
  /** Kinds of agents; each has a beginning of its own. */
  readonly clusters: readonly { readonly share: number; readonly tokens: number }[];
  /** What a session has after its cluster's beginning. */
  readonly firstTokens: BoundedLogNormal;
  /** What each follow-up adds. */
  readonly newTokens: BoundedLogNormal;
  readonly outputTokens: BoundedLogNormal;
  /** Mean of a geometric number. */
  readonly meanFollowups: number;
  /** Mean of the exponential time before a follow-up. */
  readonly pauseMeanMs: number;
}

/** Calls of a few kinds of agents: long prompts that begin alike, and short answers. */
export function toolClusterScripts(parameters: ToolClusterParameters, seed: number): ScriptOf {
  const { clusters, firstTokens, newTokens, outputTokens, meanFollowups, pauseMeanMs } = parameters;
  return (session) => {
    const random = ownRandom(seed, session);
    const cluster = drawCluster(clusters, random);
    const turns = 1 + geometric(meanFollowups, random);
    return {
      turns,
      expectedTokens: clusters[cluster]!.tokens + firstTokens.median + turns * (newTokens.median + outputTokens.median),
      pauseMs: (turn) => (turn === 0 ? 0 : exponential(pauseMeanMs, random)),
      write(turn, conversation) {
        if (turn === 0) conversation.share(cluster, clusters[cluster]!.tokens);
        conversation.own(Math.round(logNormal(turn === 0 ? firstTokens : newTokens, random)));
        return Math.round(logNormal(outputTokens, random));
      },
    };
  };
}

function drawCluster(clusters: ToolClusterParameters["clusters"], random: Random): number {
  let left = random.float() * clusters.reduce((sum, { share }) => sum + share, 0);
  for (const [at, { share }] of clusters.entries()) {
    left -= share;
    if (left < 0) return at;
  }
  return clusters.length - 1;
}
