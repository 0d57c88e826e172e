import { isJsonObject, type JsonBody, type JsonObject } from "@espalier/core";
import type { ChatDialect } from "./chat/chat-dialect.ts";

/** A request, as far as its prompt depends on it. */
export interface PromptRequest {
  /** The endpoint's id: `chat`, `completions`, `messages`, `responses`, `generate` and so on. */
  readonly endpoint: string;
  /** The top-level fields of the body, as `JSON.parse` returns them. */
  readonly fields: JsonObject;
  /** The body itself, if available: prompts matched by bytes then need no fields. */
  readonly body?: JsonBody | undefined;
  /** The dialect whose rules apply; the newest vLLM's by default. */
  readonly dialect?: ChatDialect;
}

/** The source of a prompt's tokens. Of several prompts in one request the first counts. */
export type PromptSource =
  | { readonly kind: "chat"; readonly messages: readonly unknown[] }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "tokens"; readonly tokens: Uint32Array }
  /** No prompt that an engine's cache could contain: embeddings, ranking, or fields that are not understood. */
  | { readonly kind: "none" };

/** Endpoints whose requests an engine converts to a chat before rendering. */
export const otherChatEndpoints: ReadonlySet<string> = new Set(["messages", "responses"]);

const none: PromptSource = { kind: "none" };

/** Finds the prompt of a request. A body that the engine will refuse has none. */
export function promptSource({ endpoint, fields }: PromptRequest): PromptSource {
  switch (endpoint) {
    case "chat":
    case "messages":
      return Array.isArray(fields.messages) ? { kind: "chat", messages: fields.messages } : none;
    case "responses":
      if (typeof fields.input === "string")
        return { kind: "chat", messages: [{ role: "user", content: fields.input }] };
      return Array.isArray(fields.input) ? { kind: "chat", messages: fields.input } : none;
    case "completions":
      return firstPrompt(fields.prompt);
    case "generate":
      return fields.input_ids === undefined || fields.input_ids === null
        ? firstPrompt(fields.text)
        : firstPrompt(fields.input_ids);
    case "token_generate":
      return firstPrompt(fields.token_ids);
    default:
      return none;
  }
}

function firstPrompt(value: unknown): PromptSource {
  if (typeof value === "string") return { kind: "text", text: value };
  if (!Array.isArray(value) || value.length === 0) return none;
  const first: unknown = value[0];
  if (typeof first === "string" || Array.isArray(first)) return firstPrompt(first);
  const tokens = new Uint32Array(value.length);
  for (let index = 0; index < value.length; index++) {
    const id: unknown = value[index];
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id > 0xffff_ffff) return none;
    tokens[index] = id;
  }
  return { kind: "tokens", tokens };
}

/** Whether completions with this body get the special tokens that the model wants around the text. */
export const wantsSpecialTokens = (fields: JsonObject): boolean => fields.add_special_tokens !== false;

/** The index of the first message with a part that is not text, or -1. */
export function firstPartMessage(messages: readonly unknown[]): number {
  return messages.findIndex(
    (message) =>
      isJsonObject(message) && Array.isArray(message.content) && message.content.some((part) => !isTextPart(part)),
  );
}

const textTypes: ReadonlySet<unknown> = new Set(["text", "input_text", "output_text", "refusal", "thinking"]);

/** Whether a part of a message's content is text. */
export const isTextPart = (part: unknown): boolean =>
  typeof part === "string" || (isJsonObject(part) && textTypes.has(part.type));
