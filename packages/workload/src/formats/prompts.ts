import type { ChatMessage, Prompt } from "../trace-request.ts";
import type { LineFields, TraceFormatReader } from "../trace-row.ts";

/** Output tokens of a line that does not say `max_tokens`. */
const defaultOutputTokens = 128;

/** Bytes of text that make a token, by rule of thumb for English. */
const bytesPerToken = 4;

/**
 * Prompts as JSON lines: `{"prompt": "..."}` or `{"messages": [...]}`, and optionally `max_tokens`, `session` and
 * `timestamp` in ms. The number of input tokens is estimated from the bytes of the text.
 */
export function createPromptsReader(): TraceFormatReader {
  return {
    readRow(line) {
      const row = line.object();
      const prompt = promptOf(line, row);
      const inputTokens = Math.max(1, Math.ceil(Buffer.byteLength(textOf(prompt)) / bytesPerToken));
      const maxOutputTokens = row.max_tokens === undefined ? undefined : line.count("max_tokens", row.max_tokens, 1);
      return {
        timestampMs: row.timestamp === undefined ? undefined : line.number("timestamp", row.timestamp),
        inputTokens,
        outputTokens: maxOutputTokens ?? defaultOutputTokens,
        ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
        blockIds: undefined,
        blockTokens: 512,
        session: row.session === undefined ? undefined : line.name("session", row.session),
        prompt,
      };
    },
  };
}

function promptOf(line: LineFields, row: Readonly<Record<string, unknown>>): Prompt {
  if ((row.prompt === undefined) === (row.messages === undefined)) {
    return line.fail("prompt", "a line has either prompt or messages");
  }
  if (row.messages === undefined) {
    return typeof row.prompt === "string" && row.prompt !== ""
      ? row.prompt
      : line.fail("prompt", "must be a text that is not empty");
  }
  const { messages } = row;
  if (!Array.isArray(messages) || messages.length === 0) return line.fail("messages", "must be a list of messages");
  return messages.every(isMessage) ? messages : line.fail("messages", "each must be an object with a role");
}

function isMessage(value: unknown): value is ChatMessage {
  return typeof value === "object" && value !== null && "role" in value && typeof value.role === "string";
}

function textOf(prompt: Prompt): string {
  if (typeof prompt === "string") return prompt;
  return prompt
    .map(({ content }) =>
      typeof content === "string" ? content : content === undefined ? "" : JSON.stringify(content),
    )
    .join("");
}
