import { type BoundedLogNormal, createZipf, logNormalOfMean, ownRandom, shuffled } from "../clients/draws.ts";
import { documentChatScripts, talkScripts, userChatScripts } from "../clients/long-chats.ts";
import {
  adapterScripts,
  agentScripts,
  chatScripts,
  documentScripts,
  lengthScripts,
  prefixGroupScripts,
  promptScripts,
  toolClusterScripts,
} from "../clients/scripts.ts";
import type { ScriptOf } from "../clients/session.ts";
import {
  amount,
  boolean,
  count,
  countOrNone,
  kindOf,
  list,
  milliseconds,
  object,
  positive,
  type Read,
  share,
  string,
} from "./read-fields.ts";

/** Log-normal: by its mean, between a tenth of it and ten times it, or by its median and bounds. */
export const spread: Read<BoundedLogNormal> = (value, field, fail) => {
  if (typeof value === "object" && value !== null && "mean" in value) {
    const { mean, sigma } = object({ mean: positive, sigma: amount("standard deviations") })(value, field, fail);
    return logNormalOfMean(mean, sigma);
  }
  return object({ median: positive, sigma: amount("standard deviations"), least: positive, most: positive })(
    value,
    field,
    fail,
  );
};

const countOrSpread: Read<number | BoundedLogNormal> = (value, field, fail) =>
  (typeof value === "object" ? spread : count)(value, field, fail);

const uniformTime = object({ least: milliseconds, most: milliseconds });

/** Uniform between two bounds, or log-normal. */
const toolTime: Read<BoundedLogNormal | ReturnType<typeof uniformTime>> = (value, field, fail) =>
  typeof value === "object" && value !== null && ("median" in value || "mean" in value)
    ? spread(value, field, fail)
    : uniformTime(value, field, fail);

const range = object({ least: countOrNone, most: countOrNone });
const exponent = amount("powers");

const followups: Read<{ readonly count: number } | { readonly mean: number }> = (value, field, fail) =>
  typeof value === "object" && value !== null && "mean" in value
    ? object({ mean: amount("follow-ups") })(value, field, fail)
    : object({ count: countOrNone })(value, field, fail);

/** Requests of one kind. `docs/guides/scenarios.md` says what each sends. */
const kinds = {
  chats: object(
    {
      ...{ groups: countOrNone, sharedTokens: countOrNone, sharedShare: share, firstTokens: count },
      ...{ newTokens: countOrNone, outputTokens: count, followups, thinkMeanMs: milliseconds, thinksFirst: boolean },
    },
    { groupSize: count, className: string },
  ),
  agents: object(
    {
      ...{ systemTokens: countOrNone, taskTokens: count, steps: spread, toolTokens: spread },
      ...{ outputTokens: countOrSpread, toolTimeMs: toolTime },
    },
    { groupSize: count },
  ),
  "tool-calls": object({
    clusters: list(object({ share: positive, tokens: count })),
    ...{ firstTokens: spread, newTokens: spread, outputTokens: spread },
    ...{ meanFollowups: amount("follow-ups"), pauseMeanMs: milliseconds },
  }),
  "user-chats": object({
    ...{ users: count, zipf: exponent, userTokens: countOrNone, promptTokens: spread, newTokens: count },
    ...{ outputTokens: count, singleShare: share, meanFollowups: amount("follow-ups"), pauseMeanMs: milliseconds },
  }),
  talks: object({
    ...{ meanFollowups: amount("follow-ups"), firstTokens: spread, newTokens: spread, outputTokens: spread },
  }),
  "document-chats": object({
    ...{ systemTokens: countOrNone, documentTokens: count, questionTokens: count, outputTokens: count, turns: count },
    ...{ staggered: countOrNone, startsPerS: positive },
  }),
  prompts: object({ prompts: count, sharedTokens: countOrNone, ownTokens: spread, outputTokens: spread }),
  "prefix-groups": object(
    { groups: count, prefixTokens: count, ownTokens: countOrNone, outputTokens: count },
    { zipf: exponent, promptsPerGroup: count },
  ),
  lengths: object({ inputTokens: range, outputTokens: range }),
  documents: object({
    ...{ systemTokens: countOrNone, documents: count, zipf: exponent, documentTokens: range, perPrompt: range },
    ...{ questionTokens: range, outputTokens: range },
  }),
  adapters: object({
    ...{ adapters: count, zipf: exponent, sharedTokens: countOrNone, ownTokens: countOrNone, outputTokens: count },
  }),
  repeats: object({ times: count, tokens: count, pauseMs: milliseconds }),
};

const oneKind = kindOf("kind", kinds);

/** Requests that are all of one kind. */
type RequestsOfKind = ReturnType<typeof oneKind>;

/** Of each session one part is drawn, in proportion to the shares. */
interface MixedRequests {
  readonly kind: "mix";
  readonly parts: readonly { readonly share: number; readonly requests: RequestsOfKind }[];
}

export type Requests = RequestsOfKind | MixedRequests;

const mixed = kindOf("kind", { mix: object({ parts: list(object({ share: positive, requests: oneKind })) }) });

export const requests: Read<Requests> = (value, field, fail) =>
  (value as { readonly kind?: unknown } | null)?.kind === "mix"
    ? mixed(value, field, fail)
    : oneKind(value, field, fail);

/** What sends sessions of such requests. */
export interface Scripts {
  readonly scriptOf: ScriptOf;
  /** Mean requests of a session. */
  readonly meanTurns: number;
}

export function scriptsOf(written: Requests, seed: number): Scripts {
  if (written.kind === "mix") return mixOf(written, seed);
  return { scriptOf: scriptOf(written, seed), meanTurns: meanTurnsOf(written) };
}

function mixOf({ parts }: MixedRequests, seed: number): Scripts {
  const total = parts.reduce((sum, part) => sum + part.share, 0);
  const scripts = parts.map((part) => scriptsOf(part.requests, seed));
  return {
    meanTurns: parts.reduce((sum, part, at) => sum + part.share * scripts[at]!.meanTurns, 0) / total,
    scriptOf(session) {
      let left = ownRandom(~seed, session).float() * total;
      const at = parts.findIndex((part) => {
        left -= part.share;
        return left < 0;
      });
      return scripts.at(at)!.scriptOf(session);
    },
  };
}

function scriptOf(written: RequestsOfKind, seed: number): ScriptOf {
  switch (written.kind) {
    case "chats":
      return chatScripts(written, { ...written, seed });
    case "agents":
      return agentScripts(written, seed);
    case "tool-calls":
      return toolClusterScripts(written, seed);
    case "user-chats":
      return userChatScripts(written, seed);
    case "talks":
      return talkScripts(written, seed);
    case "document-chats":
      return documentChatScripts(written);
    case "prompts":
      return promptScripts(written, seed);
    case "prefix-groups":
      return prefixGroupScripts(written, seed, groupOf(written, seed));
    case "lengths":
      return lengthScripts(written, seed);
    case "documents":
      return documentScripts(written, seed);
    case "adapters":
      return adapterScripts(written, seed);
    case "repeats":
      return repeatScripts(written);
  }
}

type Repeats = Extract<RequestsOfKind, { readonly kind: "repeats" }>;

/** Each prompt so many times in a row, with one token of answer. */
const repeatScripts =
  ({ times, tokens, pauseMs }: Repeats): ScriptOf =>
  (session) => ({
    turns: 1,
    expectedTokens: tokens + 1,
    pauseMs: () => pauseMs,
    write(_, conversation) {
      conversation.share(Math.floor(session / times), tokens);
      return 1;
    },
  });

type PrefixGroups = Extract<RequestsOfKind, { readonly kind: "prefix-groups" }>;

/** Groups in a shuffled order, popular as Zipf has it, or drawn alike. */
function groupOf({ groups, promptsPerGroup, zipf }: PrefixGroups, seed: number) {
  if (promptsPerGroup !== undefined) {
    const order = shuffled(groups * promptsPerGroup, seed);
    return (request: number): number => order[request % order.length]! % groups;
  }
  if (zipf === undefined) return undefined;
  const popular = createZipf({ count: groups, exponent: zipf });
  return (request: number): number => popular.draw(ownRandom(seed, request));
}

function meanTurnsOf(written: RequestsOfKind): number {
  switch (written.kind) {
    case "chats":
      return 1 + ("mean" in written.followups ? written.followups.mean : written.followups.count);
    case "agents":
      return written.steps.median;
    case "tool-calls":
      return 1 + written.meanFollowups;
    case "user-chats":
      return written.singleShare + (1 - written.singleShare) * (2 + written.meanFollowups);
    case "talks":
      return 2 + written.meanFollowups;
    case "document-chats":
      return written.turns;
    default:
      return 1;
  }
}
