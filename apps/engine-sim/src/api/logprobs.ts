import { type JsonObject, mixWord } from "@espalier/core";
import { optionalBoolean, optionalInteger } from "../http/body-fields.ts";
import { type GeneratedText, unitDraw, type WordList } from "../text/generated-text.ts";

/** `logprobs` of a choice, for its tokens from one to before another, in the shape of an endpoint. */
export type LogprobsOf = (text: GeneratedText, from: number, until: number) => JsonObject;

/** vLLM's `max_logprobs`. */
const maxTop = 20;

/**
 * Log-probabilities of a chat: `logprobs` and `top_logprobs`.
 *
 * @returns undefined when the request asks for none
 * @throws ApiError 400 when the fields are malformed
 */
export function chatLogprobs(words: WordList, body: JsonObject): LogprobsOf | undefined {
  const top = optionalInteger(body, "top_logprobs", 0, maxTop) ?? 0;
  if (!optionalBoolean(body, "logprobs")) return undefined;
  const described = ({ token, logprob }: Likely) => ({ token, logprob, bytes: [...Buffer.from(token)] });
  return (text, from, until) => ({
    content: places(from, until).map((index) => {
      const likely = likelyAt(words, text, index, Math.max(1, top));
      return { ...described(likely[0] as Likely), top_logprobs: likely.slice(0, top).map(described) };
    }),
  });
}

/**
 * Log-probabilities of a text completion: `logprobs`, a number.
 *
 * @returns undefined when the request asks for none
 * @throws ApiError 400 when the field is malformed
 */
export function completionLogprobs(words: WordList, body: JsonObject): LogprobsOf | undefined {
  const top = optionalInteger(body, "logprobs", 0, maxTop);
  if (top === undefined) return undefined;
  return (text, from, until) => {
    const all = places(from, until).map((index) => likelyAt(words, text, index, Math.max(1, top)));
    const chosen = all.map(([first]) => first as Likely);
    return {
      text_offset: places(from, until).map((index) => text.text(index).length),
      token_logprobs: chosen.map(({ logprob }) => logprob),
      tokens: chosen.map(({ token }) => token),
      top_logprobs: all.map((likely) => Object.fromEntries(likely.map(({ token, logprob }) => [token, logprob]))),
    };
  };
}

/** The log-probability of each of the first tokens. */
export const tokenLogprobs = (words: WordList, text: GeneratedText, count: number): readonly number[] =>
  places(0, count).map((index) => likelyAt(words, text, index, 1)[0]!.logprob);

const places = (from: number, until: number): readonly number[] =>
  Array.from({ length: until - from }, (_, at) => from + at);

interface Likely {
  readonly token: string;
  /** Natural logarithm. */
  readonly logprob: number;
}

/** The token of an answer, which is the likeliest, and others that could stand there; their probabilities add up to less than 1. */
function likelyAt({ next }: WordList, text: GeneratedText, index: number, count: number): readonly Likely[] {
  const draw = mixWord(text.token(index) ^ index);
  const token = text.word(index);
  const logprob = -0.01 - unitDraw(draw, 2) / 2;
  const others = places(1, count).map((at) => next[(draw + at) % next.length]?.text ?? "");
  const left = Math.log1p(-Math.exp(logprob));
  return [
    { token, logprob },
    ...others
      .filter((other) => other !== token)
      .map((other, at) => ({ token: other, logprob: left - (at + 1) * Math.LN2 })),
  ];
}
