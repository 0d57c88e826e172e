import { type BoundedLogNormal, createZipf, exponential, geometric, logNormal, ownRandom } from "./draws.ts";
import type { ScriptOf } from "./session.ts";
import type { TreeScript } from "./users.ts";

export interface UserChatParameters {
  /** User r has a share of the chats proportional to 1 / r^zipf. */
  readonly users: number;
  readonly zipf: number;
  /** Of all prompts of one user. */
  readonly userTokens: number;
  /** The first prompt, those tokens included. */
  readonly promptTokens: BoundedLogNormal;
  /** What each follow-up appends to the prompt before it, whose answer is not in it. */
  readonly newTokens: number;
  readonly outputTokens: number;
  /** Share of chats with one request; the others have two and a geometric number more. */
  readonly singleShare: number;
  readonly meanFollowups: number;
  /** Mean of the exponential time before a follow-up. */
  readonly pauseMeanMs: number;
}

/** Chats as a proxy's log has them: each prompt continues the one before, and not the engine's own answer. */
export function userChatScripts(parameters: UserChatParameters, seed: number): ScriptOf {
  const { userTokens, newTokens, outputTokens } = parameters;
  const popularity = createZipf({ count: parameters.users, exponent: parameters.zipf });
  return (session) => {
    const random = ownRandom(seed, session);
    const isSingle = random.float() < parameters.singleShare;
    const turns = isSingle ? 1 : 2 + geometric(parameters.meanFollowups, random);
    const user = popularity.draw(random);
    const first = Math.round(logNormal(parameters.promptTokens, random));
    return {
      turns,
      expectedTokens: first + turns * newTokens + outputTokens,
      pauseMs: (turn) => (turn === 0 ? 0 : exponential(parameters.pauseMeanMs, random)),
      write(turn, conversation) {
        if (turn > 0) conversation.cut(conversation.tokens - outputTokens);
        else conversation.share(user, userTokens);
        conversation.own(turn === 0 ? first - userTokens : newTokens);
        return outputTokens;
      },
    };
  };
}

export interface TalkParameters {
  /** Mean of the geometric number of turns after the second. */
  readonly meanFollowups: number;
  readonly firstTokens: BoundedLogNormal;
  readonly newTokens: BoundedLogNormal;
  readonly outputTokens: BoundedLogNormal;
}

/** Chats of two turns and more, with nothing in common and no pauses, as benchmarks send them. */
export function talkScripts({ meanFollowups, firstTokens, newTokens, outputTokens }: TalkParameters, seed: number) {
  const scriptOf: ScriptOf = (session) => {
    const random = ownRandom(seed, session);
    const turns = 2 + geometric(meanFollowups, random);
    return {
      turns,
      expectedTokens: turns * (newTokens.median + outputTokens.median),
      pauseMs: () => 0,
      write(turn, conversation) {
        conversation.own(Math.round(logNormal(turn === 0 ? firstTokens : newTokens, random)));
        return Math.round(logNormal(outputTokens, random));
      },
    };
  };
  return scriptOf;
}

export interface DocumentChatParameters {
  readonly systemTokens: number;
  /** Each session has a document of its own. */
  readonly documentTokens: number;
  readonly questionTokens: number;
  readonly outputTokens: number;
  readonly turns: number;
  /** The first so many sessions begin one after the other at this rate; each later one when another one ends. */
  readonly staggered: number;
  readonly startsPerS: number;
}

/** Questions about a document of one's own, without pauses. */
export function documentChatScripts(parameters: DocumentChatParameters): ScriptOf {
  const { systemTokens, documentTokens, questionTokens, outputTokens, turns, staggered, startsPerS } = parameters;
  return (session) => ({
    turns,
    expectedTokens: systemTokens + documentTokens + turns * (questionTokens + outputTokens),
    pauseMs: (turn) => (turn === 0 && session < staggered ? (1_000 * session) / startsPerS : 0),
    write(turn, conversation) {
      if (turn === 0) {
        conversation.share(0, systemTokens);
        conversation.own(documentTokens);
      }
      conversation.own(questionTokens);
      return outputTokens;
    },
  });
}

export interface TreeParameters {
  /** Of the users of each region. */
  readonly branches: readonly number[];
  readonly sharedTokens: number;
  /** Tokens that each level appends to the prompt, from the question itself on. */
  readonly promptTokens: readonly number[];
  readonly outputTokens: BoundedLogNormal;
}

/**
 * Questions that are thought through in trees.
 *
 * @param regionOf the region of a question's user
 */
export function treeScripts(
  { branches, sharedTokens, promptTokens, outputTokens }: TreeParameters,
  seed: number,
  regionOf: (session: number) => number,
): (session: number) => TreeScript {
  return (session) => {
    const random = ownRandom(seed, session);
    return {
      ...{ branches: branches[regionOf(session)]!, sharedTokens, promptTokens },
      outputTokens: () => Math.round(logNormal(outputTokens, random)),
    };
  };
}
