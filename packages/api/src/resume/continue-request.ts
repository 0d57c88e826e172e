import type { Endpoint } from "../endpoints.ts";
import { editBody } from "../request/edit-body.ts";
import { type RequestView, scanRequest, viewRequest } from "../request/request-view.ts";
import type { AnswerBeginning } from "./answer-beginning.ts";

/** A request for the rest of an answer. */
export interface Continuation {
  readonly body: readonly Buffer[];
  /** Whether the engine gets the tokens of the beginning, or its text to make tokens of; `start` where there is none. */
  readonly by: "ids" | "text" | "start";
  /** Tokens of the answer that the engine need not generate. */
  readonly tokens: number;
  /** White space that the client has, and the engine is expected to say again. */
  readonly repeated: string;
}

/** Python's `str.strip`, by which templates trim messages, takes these, too. */
const trailingSpace = /[\s\u001c-\u001f\u0085]+$/;

/**
 * Makes the request for the rest of an answer from the one for the whole of it.
 *
 * @param body of a resumable request, as the engine got it
 * @param textTokens tokens of the text, where they were counted; by default as many as the engine's events say
 * @returns `complete` when nothing is left to be said; undefined when the rest would not fit its beginning
 */
export function continueRequest(
  endpoint: Endpoint,
  body: Buffer,
  beginning: AnswerBeginning,
  maxDepth: number,
  textTokens?: number,
): Continuation | "complete" | undefined {
  const view = viewRequest(endpoint, scanRequest(body, { maxDepth }));
  if (beginning.finishReason !== undefined) return "complete";
  const { text } = beginning;
  // A character that was cut, or one that an engine could not decode yet.
  if (!text.isWellFormed() || text.endsWith("\ufffd")) return undefined;
  if (stopsOf(view).some((stop) => mayHaveBegun(stop, text))) return undefined;
  const planned = endpoint.id === "chat" ? continueChat(view, body, beginning) : continueText(view, beginning);
  if (!planned) return undefined;
  if (textTokens !== undefined && planned.by === "text") planned.tokens = textTokens;
  const limits = limitsLeft(view, planned.tokens);
  if (!limits) return "complete";
  return { ...planned, body: editBody(body, view, { set: { ...planned.set, ...limits } }) };
}

type Planned = Omit<Continuation, "body" | "tokens"> & {
  tokens: number;
  readonly set: Readonly<Record<string, string>>;
};

const fromStart = (repeated: string): Planned => ({ by: "start", tokens: 0, repeated, set: {} });

function continueText(
  view: RequestView,
  { text, ends, tokenIds, promptTokenIds }: AnswerBeginning,
): Planned | undefined {
  if (text === "") return fromStart("");
  const tokens = ends.at(-1)!.tokens;
  const [prompt] = [view.body.fields.prompt].flat(2);
  const given = typeof prompt === "number" ? ([view.body.fields.prompt].flat(2) as number[]) : promptTokenIds;
  // Text that waits for a stop sequence lags behind its tokens.
  if (tokenIds && given && stopsOf(view).length === 0) {
    return {
      by: "ids",
      tokens: tokenIds.length,
      repeated: "",
      set: { prompt: `[${[...given, ...tokenIds].join(",")}]` },
    };
  }
  if (typeof prompt !== "string") return undefined;
  return { by: "text", tokens, repeated: "", set: { prompt: JSON.stringify(prompt + text) } };
}

/** Templates may trim the message that they end with, so that the engine gets it trimmed. */
function continueChat(view: RequestView, body: Buffer, { text, ends }: AnswerBeginning): Planned | undefined {
  const content = text.replace(trailingSpace, "");
  const repeated = text.slice(content.length);
  if (content === "") return fromStart(repeated);
  const span = view.spans.get("messages");
  if (!span) return undefined;
  const messages = body.toString("utf8", span.start, span.end).trimEnd().slice(0, -1);
  const message = JSON.stringify({ role: "assistant", content });
  return {
    by: "text",
    tokens: ends.findLast(({ length }) => length <= content.length)?.tokens ?? 0,
    repeated,
    set: {
      messages: `${messages},${message}]`,
      add_generation_prompt: "false",
      continue_final_message: "true",
    },
  };
}

function stopsOf({ body }: RequestView): readonly string[] {
  return [body.fields.stop].flat().filter((stop) => typeof stop === "string" && stop !== "") as string[];
}

/** Whether a text ends with a beginning of the stop sequence, which the rest may complete. */
function mayHaveBegun(stop: string, text: string): boolean {
  for (let length = Math.min(stop.length, text.length); length > 0; length--) {
    if (text.endsWith(stop.slice(0, length))) return true;
  }
  return false;
}

/** The limits that are left after this many tokens; undefined when nothing more may be said. */
function limitsLeft({ endpoint, body }: RequestView, tokens: number): Record<string, string> | undefined {
  const set: Record<string, string> = {};
  for (const name of endpoint.outputLimitFields) {
    const limit = body.fields[name];
    if (typeof limit !== "number" || limit < 0) continue;
    if (limit <= tokens) return undefined;
    set[name] = String(limit - tokens);
  }
  const least = body.fields.min_tokens;
  if (typeof least === "number") set.min_tokens = String(Math.max(0, least - tokens));
  return set;
}
