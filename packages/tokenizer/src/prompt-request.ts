import type { JsonBody } from "@espalier/json-body";
import type { ChatDialect } from "./chat/chat-dialect.ts";
import { isJsonObject, type JsonObject } from "./json-object.ts";

/** A request as its prompt is read from it. */
export interface PromptRequest {
  /** The endpoint's id: `chat`, `completions`, `messages`, `responses`, `generate` and so on. */
  readonly endpoint: string;
  /** The top-level fields of the body, as `JSON.parse` gives them. */
  readonly fields: JsonObject;
  /** The body itself, where it is at hand: prompts that are matched by their bytes need no fields then. */
  readonly body?: JsonBody | undefined;
  /** Whose rules turn its chat into a prompt; the newest vLLM's unless given. */
  readonly dialect?: ChatDialect;
}

/** Where the tokens of a request's prompt come from. Of several prompts in one request the first counts. */
export type PromptSource =
  | { readonly kind: "chat"; readonly messages: readonly unknown[] }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "tokens"; readonly tokens: Uint32Array }
  /** No prompt that could be found in an engine's cache: embeddings, ranking, or fields that are not understood. */
  | { readonly kind: "none" };

/** Endpoints whose requests an engine turns into a chat before it renders them. */
export const otherChatEndpoints: ReadonlySet<string> = new Set(["messages", "responses"]);

const none: PromptSource = { kind: "none" };

/** Finds the prompt of a request; a body that the engine will refuse has none. */
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

/** Whether completions with this body get the tokens around the text that the model wants there. */
export const wantsSpecialTokens = (fields: JsonObject): boolean => fields.add_special_tokens !== false;

/** The place of the first message with a part that is not text, or -1. */
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
