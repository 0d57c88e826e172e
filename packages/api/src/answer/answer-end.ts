/** How an answer ended, by what its engine says: it calls tools, it is whole, or its length was limited. */
export type AnswerEnd = "tool_calls" | "stop" | "length";

export const answerEnds: readonly AnswerEnd[] = ["tool_calls", "stop", "length"];

/** The words of OpenAI, Anthropic and SGLang. */
const meanings: ReadonlyMap<string, AnswerEnd> = new Map([
  ["tool_calls", "tool_calls"],
  ["function_call", "tool_calls"],
  ["tool_use", "tool_calls"],
  ["stop", "stop"],
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["length", "length"],
  ["max_tokens", "length"],
  ["max_output_tokens", "length"],
]);

/** In the order in which they decide. Engines write reasons behind the content, so that the last one counts. */
const reasonKeys = ['"finish_reason"', '"stop_reason"'].map((key) => Buffer.from(key));
/** The Responses API has no reason: a call is an item of the output, and a response has a status. */
const callItems = ['"function_call"', '"custom_tool_call"', '"local_shell_call"'].map((type) => Buffer.from(type));
const responseMark = Buffer.from('"response"');
const statusKey = Buffer.from('"status"');

/** Fits a key, whitespace and a reason; SGLang's is an object. */
const maxReasonBytes = 96;
const reasonValue = /^"[a-z_]+"\s*:\s*(?:\{\s*"type"\s*:\s*)?"([a-z_]+)"/;

/** Searches bytes for how an answer ended, without parsing them. @returns undefined if they do not say it */
export function readAnswerEnd(bytes: Buffer): AnswerEnd | undefined {
  for (const key of reasonKeys) {
    const end = meanings.get(lastValue(bytes, key) ?? "");
    if (end !== undefined) return end;
  }
  if (!bytes.includes(responseMark)) return undefined;
  if (callItems.some((type) => bytes.includes(type))) return "tool_calls";
  const status = lastValue(bytes, statusKey);
  if (bytes.includes('"incomplete"')) return "length";
  return status === "completed" ? "stop" : undefined;
}

function lastValue(bytes: Buffer, key: Buffer): string | undefined {
  const at = bytes.lastIndexOf(key);
  return at < 0 ? undefined : reasonValue.exec(bytes.toString("latin1", at, at + maxReasonBytes))?.[1];
}

/** The longest answer in one piece whose end is read. */
const maxBodyBytes = 1_048_576;

/** Keeps the body of an answer without streaming, which is there in a few pieces, until its end. */
export class AnswerEndReader {
  #pieces: Buffer[] = [];
  #size = 0;

  push(chunk: Buffer): void {
    this.#size += chunk.length;
    if (this.#size > maxBodyBytes) this.#pieces = [];
    else this.#pieces.push(chunk);
  }

  answerEnd(): AnswerEnd | undefined {
    return readAnswerEnd(this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces));
  }
}
