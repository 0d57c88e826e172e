import type { JsonObject } from "../files/json-object.ts";
import { billingHeader } from "../template/conversation.ts";
import { isFields } from "../template/fields.ts";

type Fields = Readonly<Record<string, unknown>>;

/** What of a model's templates the conversion depends on. */
export interface MessagesRules {
  /** Whether messages of the system that come later are put into the first one, because the template refuses them. */
  readonly mergesSystem: boolean;
  /** The effort that stands for `thinking` of type `disabled`. */
  readonly disabledEffort: () => string;
}

/** A request that is not turned into a chat: it is matched by its bytes. */
class NotConverted extends Error {}

/**
 * The chat completion that vLLM 0.32 makes of a body of `POST /v1/messages` before it renders it
 * (`entrypoints/anthropic/serving.py`; 0.23 alike).
 *
 * @returns undefined for a body that the engine would refuse, or that changes its tools on the way
 */
export function messagesChat(fields: JsonObject, rules: MessagesRules): JsonObject | undefined {
  try {
    return convert(fields, rules);
  } catch (error) {
    if (error instanceof NotConverted) return undefined;
    throw error;
  }
}

function convert(fields: JsonObject, { mergesSystem, disabledEffort }: MessagesRules): JsonObject {
  const { messages, system, tools, thinking, output_config: output, chat_template_kwargs: kwargs } = fields;
  if (!Array.isArray(messages) || !messages.every(isFields)) throw new NotConverted();
  const isInline = ({ role }: Fields): boolean => role === "system";
  const systemTexts = [
    ...textsOf(system),
    ...(mergesSystem ? messages.filter(isInline).flatMap(({ content }) => textsOf(content)) : []),
  ];
  const chat: JsonObject[] = systemTexts.length > 0 ? [{ role: "system", content: systemTexts.join("") }] : [];
  for (const message of messages) {
    if (!isInline(message)) chat.push(...messageChat(message));
    else if (!mergesSystem) {
      const text = textsOf(message.content).join("");
      if (text !== "") chat.push({ role: "system", content: text });
    }
  }
  const isDisabled = isFields(thinking) && thinking.type === "disabled";
  const effort = isDisabled ? disabledEffort() : isFields(output) ? output.effort : undefined;
  return {
    messages: chat,
    ...(Array.isArray(tools) && { tools: tools.map(toolChat) }),
    ...(kwargs !== undefined && { chat_template_kwargs: kwargs }),
    ...(effort !== undefined && effort !== null && { reasoning_effort: effort }),
  };
}

/** The texts of a system prompt or message, without what agents put there for billing. */
function textsOf(content: unknown): string[] {
  const texts = typeof content === "string" ? [content] : Array.isArray(content) ? content.map(textOfBlock) : [];
  return texts
    .filter((text) => typeof text === "string")
    .filter((text) => text !== "" && !text.startsWith(billingHeader));
}

function textOfBlock(block: unknown): unknown {
  if (!isFields(block) || isToolChange(block)) throw new NotConverted();
  return block.type === "text" ? block.text : undefined;
}

const isToolChange = ({ type }: Fields): boolean => type === "tool_addition" || type === "tool_removal";

/** The messages of a chat that one message becomes: results of tools come before what else the user says. */
function messageChat({ role, content }: Fields): JsonObject[] {
  if (typeof content === "string") return [{ role, content }];
  if (!Array.isArray(content) || !content.every(isFields)) throw new NotConverted();
  const results: JsonObject[] = [];
  const parts: Fields[] = [];
  const calls: JsonObject[] = [];
  const reasoning: string[] = [];
  for (const block of content) {
    if (isToolChange(block)) throw new NotConverted();
    if (block.type === "text") parts.push(...textParts(block.text));
    else if (block.type === "image") parts.push(imagePart(block.source));
    else if (block.type === "thinking" && typeof block.thinking === "string") reasoning.push(block.thinking);
    else if (block.type === "tool_use") calls.push(toolCall(block));
    else if (block.type === "tool_result" && role === "user") results.push(...toolResult(block));
    else if (block.type === "tool_result") throw new NotConverted();
  }
  const [first] = parts;
  const isOneText = parts.length === 1 && first?.type === "text";
  const message: JsonObject = {
    role,
    ...(parts.length > 0 && { content: isOneText ? first.text : parts }),
    ...(reasoning.length > 0 && { reasoning: reasoning.join("") }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
  return role === "user" && parts.length === 0 ? results : [...results, message];
}

const textParts = (text: unknown): Fields[] =>
  typeof text === "string" && text !== "" ? [{ type: "text", text }] : [];

function imagePart(source: unknown): Fields {
  if (!isFields(source)) throw new NotConverted();
  const { type, url, media_type: mediaType = "image/jpeg", data = "" } = source;
  return { type: "image_url", image_url: { url: type === "url" ? url : `data:${mediaType};base64,${data}` } };
}

function toolCall({ id, name, input }: Fields): JsonObject {
  const given = isFields(input) ? input : {};
  return { id, type: "function", function: { name: name ?? "", arguments: given } };
}

function toolResult({ tool_use_id: id = "", content }: Fields): JsonObject[] {
  const items = Array.isArray(content) ? content.filter(isFields) : [];
  const text =
    typeof content === "string"
      ? content
      : items
          .filter(isText)
          .map(({ text = "" }) => text)
          .join("\n");
  const images = items.filter(({ type }) => type === "image").map(({ source }) => imagePart(source));
  const references = items
    .filter(({ type }) => type === "tool_reference")
    .map(({ tool_name: own, name }) => own ?? name);
  const named = references.filter((name) => typeof name === "string" && name !== "");
  return [
    { role: "tool", tool_call_id: id, content: text },
    ...(images.length > 0 ? [{ role: "user", content: images }] : []),
    ...(named.length > 0
      ? [{ role: "tool", tool_call_id: id, content: named.map((name) => ({ type: "tool_reference", name })) }]
      : []),
  ];
}

const isText = ({ type }: Fields): boolean => type === "text";

function toolChat(tool: unknown): JsonObject {
  if (!isFields(tool) || !isFields(tool.input_schema)) throw new NotConverted();
  const { name, description, input_schema: schema, strict, defer_loading: isDeferred } = tool;
  const parameters = Object.hasOwn(schema, "type") ? schema : { ...schema, type: "object" };
  return { type: "function", function: { name, description, parameters, strict, defer_loading: isDeferred } };
}
