import { isJsonObject, type JsonObject } from "@espalier/core";
import { GrowableBuffer } from "../growable-buffer.ts";
import { type AnswerBeginning, parseObject, textOf } from "./answer-beginning.ts";
import type { Continuation } from "./continue-request.ts";

/** A longer event of a resumed stream ends it. */
const maxEventBytes = 1_048_576;

const eventEnds = ["\n\n", "\r\n\r\n"].map((end) => Buffer.from(end));

interface SpliceOptions {
  readonly beginning: AnswerBeginning;
  readonly continuation: Pick<Continuation, "tokens" | "repeated">;
  /** Tokens of the client's prompt; undefined if they are not known for certain. */
  readonly promptTokens?: number | undefined;
  /** Precedes the end of the stream. */
  readonly comment: () => string;
}

/** Makes the stream of the engine that goes on the continuation of the stream that broke. */
export class StreamSplice {
  readonly #beginning: AnswerBeginning;
  readonly #tokens: number;
  readonly #promptTokens: number | undefined;
  readonly #comment: () => string;
  /** What the client has of the text that comes next. */
  #repeated: string;
  readonly #partial = new GrowableBuffer();
  #hasFailed = false;

  constructor({ beginning, continuation, promptTokens, comment }: SpliceOptions) {
    this.#beginning = beginning;
    this.#tokens = continuation.tokens;
    this.#repeated = continuation.repeated;
    this.#promptTokens = promptTokens ?? beginning.promptTokens;
    this.#comment = comment;
  }

  /** Whether the rest is not one of plain text. Nothing more passes then. */
  get hasFailed(): boolean {
    return this.#hasFailed;
  }

  /** @returns the whole events that the client gets now, undefined for none */
  push(chunk: Buffer): Buffer | undefined {
    if (this.#hasFailed) return undefined;
    this.#partial.append(chunk);
    const bytes = this.#partial.take();
    const end = lastEventEnd(bytes);
    this.#partial.append(bytes.subarray(end));
    if (this.#partial.size > maxEventBytes) this.#hasFailed = true;
    return end === 0 ? undefined : this.#spliced(bytes.toString("utf8", 0, end));
  }

  /** The engine has closed its stream. Only the blank line may be missing at its end. */
  end(): Buffer | undefined {
    const rest = this.#partial.take().toString("utf8").trim();
    return rest === "" || this.#hasFailed ? undefined : this.#spliced(rest);
  }

  #spliced(text: string): Buffer | undefined {
    let spliced = "";
    for (const event of text.split(/\r\n\r\n|\n\n/)) {
      if (event === "") continue;
      const passed = this.#spliceEvent(event);
      if (this.#hasFailed) break;
      if (passed !== undefined) spliced += `${passed}\n\n`;
    }
    return spliced === "" ? undefined : Buffer.from(spliced);
  }

  #spliceEvent(event: string): string | undefined {
    const written = /^data: ?(.*)$/s.exec(event)?.[1];
    if (written === undefined) return event;
    if (written === "[DONE]") return `: ${this.#comment()}\n\n${event}`;
    const data = parseObject(written);
    // An error, or something that no engine writes: the client gets it as it is.
    if (!data || data.error !== undefined || !Array.isArray(data.choices)) return event;
    const choice: unknown = data.choices[0];
    const rest = choice === undefined ? undefined : this.#spliceChoice(choice);
    if (rest === "nothing" || this.#hasFailed) return undefined;
    const { prompt_token_ids: _, ...kept } = data;
    const { envelope = {} } = this.#beginning;
    return `data: ${JSON.stringify({
      ...kept,
      ...envelope,
      ...(rest && { choices: [rest] }),
      ...(isJsonObject(data.usage) && { usage: this.#usageOf(data.usage) }),
    })}`;
  }

  /** @returns `nothing` for one with nothing that the client does not have */
  #spliceChoice(choice: unknown): JsonObject | "nothing" {
    const said = isJsonObject(choice) ? textOf(choice) : undefined;
    if (said === undefined || !isJsonObject(choice)) {
      this.#hasFailed = true;
      return "nothing";
    }
    const text = this.#withoutRepeated(said);
    const isEnd = typeof choice.finish_reason === "string";
    const { promptTokenIds, isOpened } = this.#beginning;
    const rest: Record<string, unknown> = { ...choice };
    if (promptTokenIds) delete rest.prompt_token_ids;
    if (!isJsonObject(choice.delta)) {
      if (text === "" && said !== "" && !isEnd) return "nothing";
      return { ...rest, text };
    }
    const { role, ...given } = choice.delta;
    const delta: Record<string, unknown> = given;
    const opens = role !== undefined && !isOpened;
    if (text === "" && !isEnd && !opens) return "nothing";
    if (said !== "") delta.content = text;
    return { ...rest, delta: opens ? { role, ...delta } : delta };
  }

  /** A text that does not repeat it exactly goes on behind what the client has. */
  #withoutRepeated(said: string): string {
    let same = 0;
    while (same < said.length && same < this.#repeated.length && said[same] === this.#repeated[same]) same++;
    if (said !== "") this.#repeated = same === said.length ? this.#repeated.slice(same) : "";
    return said.slice(same);
  }

  #usageOf(usage: JsonObject): JsonObject {
    const { prompt_tokens: prompt, completion_tokens: completion, prompt_tokens_details: details } = usage;
    if (typeof prompt !== "number" || typeof completion !== "number") return usage;
    const promptTokens = this.#promptTokens ?? Math.max(0, prompt - this.#tokens);
    // By the longer prompt, which has what was said: it may have other tokens than were generated.
    const completionTokens = completion + (this.#tokens === 0 ? 0 : Math.max(0, prompt - promptTokens));
    const cached =
      isJsonObject(details) && typeof details.cached_tokens === "number" ? details.cached_tokens : undefined;
    return {
      ...usage,
      prompt_tokens: promptTokens,
      total_tokens: promptTokens + completionTokens,
      completion_tokens: completionTokens,
      ...(cached !== undefined && {
        prompt_tokens_details: { ...(details as JsonObject), cached_tokens: Math.min(cached, promptTokens) },
      }),
    };
  }
}

/** Just behind the last blank line; 0 without one. */
function lastEventEnd(bytes: Buffer): number {
  return Math.max(
    ...eventEnds.map((end) => {
      const at = bytes.lastIndexOf(end);
      return at < 0 ? 0 : at + end.length;
    }),
  );
}
