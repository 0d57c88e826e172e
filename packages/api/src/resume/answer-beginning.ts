import { isJsonObject, type JsonObject, parseJson } from "@espalier/core";
import { isFilled } from "../answer/answer-content.ts";

/** What a stream had said when it broke. */
export interface AnswerBeginning {
  /** Fields that all chunks of a stream have alike; undefined before the first chunk. */
  readonly envelope: JsonObject | undefined;
  /** Whether the chunk that only opens an answer has passed. */
  readonly isOpened: boolean;
  /** Everything said. */
  readonly text: string;
  /** For each chunk with text: where its text ends, and how many tokens there are up to it. */
  readonly ends: readonly TextEnd[];
  /** Tokens of all chunks. */
  readonly tokens: number;
  /** Ids of the tokens of the text; undefined if the engine does not return them. */
  readonly tokenIds: readonly number[] | undefined;
  readonly promptTokenIds: readonly number[] | undefined;
  /** As the engine reports in each chunk; undefined if it does not. */
  readonly promptTokens: number | undefined;
  /** Why the answer ended, if it was complete but for the end of its stream. */
  readonly finishReason: string | undefined;
  /** Whether its usage has been reported. */
  readonly isReported: boolean;
}

interface TextEnd {
  readonly length: number;
  readonly tokens: number;
}

const blankLine = /\r\n\r\n|\n\n|\r\r/;
const lineEnd = /\r\n|\n|\r/;

/** The events of a stream as JSON, up to the first one that is none or reports an error. */
function* readEvents(bytes: Buffer): Generator<JsonObject> {
  // What is behind the last blank line is no event, and may end inside a character.
  for (const event of bytes.toString("utf8").split(blankLine).slice(0, -1)) {
    const lines = event.split(lineEnd).filter((line) => line.startsWith("data:"));
    if (lines.length === 0) continue;
    const data = parseObject(lines.map((line) => line.slice("data:".length)).join("\n"));
    if (!data || data.error !== undefined) return;
    yield data;
  }
}

export function parseObject(text: string): JsonObject | undefined {
  const value = parseJson(text);
  return isJsonObject(value) ? value : undefined;
}

/**
 * Reads the beginning of an answer, as one choice of plain text.
 *
 * @param bytes everything that the engine sent
 * @returns undefined for any other answer, as one with reasoning in it, or calls of tools
 */
export function readBeginning(bytes: Buffer): AnswerBeginning | undefined {
  let envelope: JsonObject | undefined;
  let text = "";
  let tokens = 0;
  const ends: TextEnd[] = [];
  const ids: number[] = [];
  let idsOfText = 0;
  let hasIds = true;
  let isOpened = false;
  let isReported = false;
  let promptTokenIds: readonly number[] | undefined;
  let promptTokens: number | undefined;
  let finishReason: string | undefined;
  for (const data of readEvents(bytes)) {
    envelope ??= envelopeOf(data);
    const usage = isJsonObject(data.usage) ? data.usage : undefined;
    if (typeof usage?.prompt_tokens === "number") promptTokens = usage.prompt_tokens;
    const [choice, another]: readonly unknown[] = Array.isArray(data.choices) ? data.choices : [undefined, undefined];
    if (choice === undefined && usage) {
      isReported = true;
      continue;
    }
    const said = another === undefined && isJsonObject(choice) ? textOf(choice) : undefined;
    if (said === undefined || !isJsonObject(choice)) return undefined;
    promptTokenIds ??= idsOf(data.prompt_token_ids) ?? idsOf(choice.prompt_token_ids);
    const chunkIds = idsOf(choice.token_ids);
    // A spread would put as many arguments on the stack.
    for (const id of chunkIds ?? []) ids.push(id);
    if (!chunkIds && said !== "") hasIds = false;
    const isOpening = isJsonObject(choice.delta) && choice.delta.role !== undefined && said === "";
    isOpened ||= isOpening || isJsonObject(choice.delta);
    if (typeof usage?.completion_tokens === "number") tokens = usage.completion_tokens;
    else tokens += chunkIds ? chunkIds.length : isOpening ? 0 : 1;
    if (typeof choice.finish_reason === "string") finishReason = choice.finish_reason;
    if (said === "") continue;
    text += said;
    idsOfText = ids.length;
    ends.push({ length: text.length, tokens });
  }
  const tokenIds = hasIds && idsOfText > 0 ? ids.slice(0, idsOfText) : undefined;
  return { envelope, isOpened, text, ends, tokens, tokenIds, promptTokenIds, promptTokens, finishReason, isReported };
}

function envelopeOf({ id, object, created, model }: JsonObject): JsonObject {
  return { id, object, created, model };
}

function idsOf(value: unknown): readonly number[] | undefined {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id)) ? value : undefined;
}

/** Fields of a chunk that say nothing when they are null or empty. */
const saidElsewhere = ["reasoning", "reasoning_content", "tool_calls", "function_call", "refusal", "audio"];

/** What a choice says. @returns undefined if it is none of plain text, or not the first */
export function textOf({ index, text, delta }: JsonObject): string | undefined {
  if (index !== undefined && index !== 0) return undefined;
  if (typeof text === "string") return text;
  if (!isJsonObject(delta) || saidElsewhere.some((name) => isFilled(delta[name]))) return undefined;
  const { content = null } = delta;
  if (content === null) return "";
  return typeof content === "string" ? content : undefined;
}
