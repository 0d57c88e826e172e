import { isJsonObject, type JsonObject } from "@espalier/core";
import { readJson } from "../template/json.ts";
import { valueError } from "../template/template-error.ts";
import { isDict, isTrue } from "../template/values.ts";
import { type ChatDialect, type ContentFormat, newestDialect } from "./chat-dialect.ts";

/** A message as the template sees it. */
export type TemplateMessage = Record<string, unknown>;

export interface Conversation {
  readonly messages: readonly TemplateMessage[];
  /** The index of the first message with a part that is not text. */
  readonly firstWithParts: number | undefined;
  /**
   * The images, audio and videos as the request has them, in the order of the messages' parts; undefined where the
   * engine puts their placeholders itself, or has other parts.
   */
  readonly media?: readonly JsonObject[] | undefined;
}

/** One message as the template sees it. */
interface ConvertedMessage {
  readonly message: TemplateMessage;
  /** Whether it has a part that is not text. */
  readonly hasParts: boolean;
  /** Its images, audio and videos, if the template writes their placeholders; undefined for other parts, too. */
  readonly media?: readonly JsonObject[] | undefined;
}

/** How an engine converts a message for a template. */
export type ConvertMessage = (message: unknown, index: number) => ConvertedMessage;

/**
 * Converts a request's messages for a template as vLLM 0.32 does.
 *
 * @throws TemplateError for a message that the engine would refuse
 */
export const toConversation = (
  messages: readonly unknown[],
  format: ContentFormat,
  dialect?: ChatDialect,
): Conversation => convertAll(messages, vllmMessages(format, dialect));

/** @throws TemplateError as `convert` does */
export function convertAll(messages: readonly unknown[], convert: ConvertMessage): Conversation {
  const converted = messages.map(convert);
  const firstWithParts = converted.findIndex(({ hasParts }) => hasParts);
  if (firstWithParts < 0) return { messages: converted.map(({ message }) => message), firstWithParts: undefined };
  const isPlaced = converted.every(({ hasParts, media }) => !hasParts || media);
  return {
    messages: converted.map(({ message }) => message),
    firstWithParts,
    media: isPlaced ? converted.flatMap(({ media = [] }) => media) : undefined,
  };
}

/**
 * The rules of vLLM 0.32: content in the template's format, arguments of tool calls as objects, and only those other
 * fields of each role that vLLM passes on.
 */
export function vllmMessages(format: ContentFormat, dialect: ChatDialect = newestDialect): ConvertMessage {
  return (message, index) => {
    if (!isJsonObject(message)) throw valueError(`messages[${index}] is not an object`);
    const content = isBillingDropped(message, dialect) ? withoutBilling(message.content) : message.content;
    const hasParts = Array.isArray(content) && content.some((part) => textOfPart(part) === undefined);
    const media = hasParts && format === "openai" ? mediaOf(content) : undefined;
    return { message: toMessage(message, contentOf(content, format)), hasParts, media };
  };
}

function toMessage(message: JsonObject, content: unknown): TemplateMessage {
  const { role, name, tool_call_id: toolCallId, tool_calls: toolCalls } = message;
  const result: TemplateMessage = { role, content };
  if (role === "assistant") {
    if (Array.isArray(toolCalls) && toolCalls.length > 0) result.tool_calls = toolCalls.map(toToolCall);
    const reasoning = message.reasoning ?? message.reasoning_content;
    if (reasoning !== undefined && reasoning !== null) {
      result.reasoning = reasoning;
      result.reasoning_content = reasoning;
    }
  } else if (role === "tool") {
    if (toolCallId !== undefined) result.tool_call_id = toolCallId;
    if (Array.isArray(content)) result.content = joinedText(content) ?? content;
  }
  if (typeof name === "string") result.name = name;
  if (role === "developer") result.tools = message.tools ?? null;
  return result;
}

/** The content of a tool's message as one string; undefined when it has parts that are not text. */
function joinedText(parts: readonly unknown[]): string | undefined {
  const texts = parts.map((part) => (isJsonObject(part) && part.type === "text" ? String(part.text) : undefined));
  return texts.includes(undefined) ? undefined : texts.join("\n");
}

function contentOf(content: unknown, format: ContentFormat): unknown {
  if (format === "string") {
    if (typeof content === "string") return content;
    if (content === null || content === undefined) return "";
    if (!Array.isArray(content)) throw valueError("the content of a message is neither text nor parts");
    // Other parts become placeholders that only the engine knows.
    return content
      .map(textOfPart)
      .filter((text) => typeof text === "string" && text !== "")
      .join("\n");
  }
  if (typeof content === "string") return [{ type: "text", text: content }];
  if (content === null || content === undefined) return [];
  if (!Array.isArray(content)) throw valueError("the content of a message is neither text nor parts");
  return content.map(toPart).filter((part) => part !== undefined);
}

function mediaOf(content: readonly unknown[]): readonly JsonObject[] | undefined {
  const others = content.filter((part) => textOfPart(part) === undefined).filter(isJsonObject);
  return others.some(({ type }) => type === "tool_reference") ? undefined : others;
}

function toPart(part: unknown): TemplateMessage | undefined {
  const text = textOfPart(part);
  if (text === null) return undefined;
  if (text !== undefined) return { type: "text", text };
  if (isJsonObject(part) && part.type === "tool_reference") return { ...part };
  return { type: modalityOf(part) };
}

/** Types of text parts, each with the field that contains the text. */
const textFields: Readonly<Record<string, string>> = {
  text: "text",
  input_text: "text",
  output_text: "text",
  refusal: "refusal",
  thinking: "thinking",
};

/** The text of a part; null for a text part without text, undefined for other kinds of parts. */
function textOfPart(part: unknown): string | null | undefined {
  if (typeof part === "string") return part;
  if (!isJsonObject(part) || typeof part.type !== "string" || !Object.hasOwn(textFields, part.type)) return undefined;
  const text = part[textFields[part.type]!];
  return typeof text === "string" ? text : null;
}

/** The word for a part in templates: `image_url`, `input_image` and `image_embeds` are all `image`. */
function modalityOf(part: unknown): string {
  const names = isJsonObject(part) ? [part.type, ...Object.keys(part)] : [];
  for (const modality of ["image", "audio", "video"]) {
    if (names.some((name) => typeof name === "string" && name.includes(modality))) return modality;
  }
  throw valueError("a content part has an unknown type");
}

function toToolCall(call: unknown): TemplateMessage {
  if (!isJsonObject(call) || !isJsonObject(call.function)) throw valueError("a tool call has no function");
  return { ...call, function: { ...call.function, arguments: toArguments(call.function.arguments) } };
}

/** Arguments are an object for the template; anything but a JSON object becomes an empty one, as in vLLM. */
function toArguments(value: unknown): unknown {
  const parsed = typeof value === "string" && isTrue(value) ? readJson(value)?.value : value;
  return isDict(parsed) ? parsed : {};
}

/** Agents write this before their system prompt: a line with a hash that differs in every request. */
export const billingHeader = "x-anthropic-billing-header";

const isBillingDropped = ({ role }: JsonObject, dialect: ChatDialect): boolean =>
  role === "system" && dialect === "vllm-0.32";

/** The content of a system message without such lines; a part with nothing else is dropped too. */
function withoutBilling(content: unknown): unknown {
  if (typeof content === "string") return content.startsWith(billingHeader) ? restOf(content) : content;
  if (!Array.isArray(content)) return content;
  return content.flatMap((part: unknown) => {
    const text = isJsonObject(part) && part.type === "text" ? part.text : part;
    if (typeof text !== "string" || !text.startsWith(billingHeader)) return [part];
    const rest = restOf(text);
    if (rest === "") return [];
    return isJsonObject(part) ? [{ ...part, text: rest }] : [rest];
  });
}

const restOf = (text: string): string => (text.includes("\n") ? text.slice(text.indexOf("\n") + 1) : "");

/**
 * The conversation for a template without the role `developer`, as vLLM 0.23 to 0.32 passes it on (`renderers/hf.py`).
 * Developer messages become system messages. If system messages then exist beyond the first message, they are merged
 * into one at the front.
 *
 * @param source of the template
 */
export function withoutDevelopers(conversation: Conversation, source: string): Conversation {
  const { messages, firstWithParts, media } = conversation;
  if (namesDevelopers(source) || messages.every(({ role }) => role !== "developer")) return conversation;
  const converted = messages.map((message) => (message.role === "developer" ? asSystem(message) : message));
  if (converted.every(({ role }, at) => role !== "system" || at === 0)) {
    return { messages: converted, firstWithParts, media };
  }
  const others = converted.filter(({ role }) => role !== "system");
  const texts = converted.filter(({ role }) => role === "system").map(({ content }) => textOf(content));
  const merged = { role: "system", content: texts.filter((text) => text !== "").join("\n\n") };
  const withParts = firstWithParts === undefined ? -1 : others.indexOf(converted[firstWithParts]!);
  // Merging drops the other parts of system messages.
  const place = withParts < 0 ? firstWithParts && 0 : withParts + 1;
  return { messages: [merged, ...others], firstWithParts: place };
}

/** Whether a template has a rule for messages of the role `developer`. */
export const namesDevelopers = (source: string): boolean =>
  source.includes('"developer"') || source.includes("'developer'");

function asSystem({ tools: _tools, ...message }: TemplateMessage): TemplateMessage {
  return { ...message, role: "system" };
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  const texts = content.map((part: unknown) => (part as TemplateMessage).text);
  return texts.filter((text) => typeof text === "string").join("\n");
}
