import { isJsonObject, type JsonObject } from "@espalier/core";
import { billingHeader } from "./conversation.ts";

/** The properties of a model's templates that the conversion depends on. */
export interface MessagesRules {
  /** Whether later system messages are merged into the first one, because the template refuses them. */
  readonly mergesSystem: boolean;
  /** The effort that replaces `thinking` of type `disabled`. */
  readonly disabledEffort: () => string;
}

/** The request is not converted to a chat: its prompt is matched by bytes. */
class NotConverted extends Error {}

/**
 * The chat completion to which vLLM 0.32 converts a body of `POST /v1/messages` before rendering it
 * (`entrypoints/anthropic/serving.py`; 0.23 alike).
 *
 * @returns undefined for a body that the engine would refuse, or that changes its tools midway
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
  if (!Array.isArray(messages) || !messages.every(isJsonObject)) throw new NotConverted();
  const isInline = ({ role }: JsonObject): boolean => role === "system";
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
  const isDisabled = isJsonObject(thinking) && thinking.type === "disabled";
  const effort = isDisabled ? disabledEffort() : isJsonObject(output) ? output.effort : undefined;
  return {
    messages: chat,
    ...(Array.isArray(tools) && { tools: tools.map(toolChat) }),
    ...(kwargs !== undefined && { chat_template_kwargs: kwargs }),
    ...(effort !== undefined && effort !== null && { reasoning_effort: effort }),
  };
}

/** The texts of a system prompt or message, without the lines that agents add for billing. */
function textsOf(content: unknown): string[] {
  const texts = typeof content === "string" ? [content] : Array.isArray(content) ? content.map(textOfBlock) : [];
  return texts
    .filter((text) => typeof text === "string")
    .filter((text) => text !== "" && !text.startsWith(billingHeader));
}

function textOfBlock(block: unknown): unknown {
  if (!isJsonObject(block) || isToolChange(block)) throw new NotConverted();
  return block.type === "text" ? block.text : undefined;
}

const isToolChange = ({ type }: JsonObject): boolean => type === "tool_addition" || type === "tool_removal";

/** Converts one message to messages of a chat: tool results precede the rest of the user's message. */
function messageChat({ role, content }: JsonObject): JsonObject[] {
  if (typeof content === "string") return [{ role, content }];
  if (!Array.isArray(content) || !content.every(isJsonObject)) throw new NotConverted();
  const results: JsonObject[] = [];
  const parts: JsonObject[] = [];
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

const textParts = (text: unknown): JsonObject[] =>
  typeof text === "string" && text !== "" ? [{ type: "text", text }] : [];

function imagePart(source: unknown): JsonObject {
  if (!isJsonObject(source)) throw new NotConverted();
  const { type, url, media_type: mediaType = "image/jpeg", data = "" } = source;
  return { type: "image_url", image_url: { url: type === "url" ? url : `data:${mediaType};base64,${data}` } };
}

function toolCall({ id, name, input }: JsonObject): JsonObject {
  const given = isJsonObject(input) ? input : {};
  return { id, type: "function", function: { name: name ?? "", arguments: given } };
}

function toolResult({ tool_use_id: id = "", content }: JsonObject): JsonObject[] {
  const items = Array.isArray(content) ? content.filter(isJsonObject) : [];
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

const isText = ({ type }: JsonObject): boolean => type === "text";

function toolChat(tool: unknown): JsonObject {
  if (!isJsonObject(tool) || !isJsonObject(tool.input_schema)) throw new NotConverted();
  const { name, description, input_schema: schema, strict, defer_loading: isDeferred } = tool;
  const parameters = Object.hasOwn(schema, "type") ? schema : { ...schema, type: "object" };
  return { type: "function", function: { name, description, parameters, strict, defer_loading: isDeferred } };
}

/** Items that vLLM merges into the assistant's message before them. */
type Addition = "tool_calls" | "reasoning" | "content";

/**
 * The chat completion to which vLLM 0.32 converts a body of `POST /v1/responses` before rendering it
 * (`entrypoints/openai/responses/utils.py`; 0.23 alike).
 *
 * @returns undefined for a body that the engine would refuse, that continues a stored response, or has tools and items
 *   beyond functions
 */
export function responsesChat(fields: JsonObject): JsonObject | undefined {
  const { instructions, input, tools, reasoning, chat_template_kwargs: kwargs } = fields;
  if (isGiven(fields.previous_response_id) || isGiven(fields.previous_input_messages)) return undefined;
  const system =
    typeof instructions === "string" && instructions !== "" ? [{ role: "system", content: instructions }] : [];
  const said =
    typeof input === "string"
      ? [{ role: "user", content: input }]
      : Array.isArray(input)
        ? itemsChat(input)
        : undefined;
  const functions = toolsChat(tools);
  if (!said || !functions) return undefined;
  const effort = isJsonObject(reasoning) ? reasoning.effort : undefined;
  const isOpen = Array.isArray(input) && isUnfinished(input.at(-1));
  return {
    messages: [...system, ...said],
    ...(functions.length > 0 && { tools: functions }),
    ...(kwargs !== undefined && { chat_template_kwargs: kwargs }),
    ...(isGiven(effort) && { reasoning_effort: effort }),
    ...(isOpen && { add_generation_prompt: false, continue_final_message: true }),
  };
}

const isGiven = (value: unknown): boolean => value !== undefined && value !== null;

/** Whether the last item is an answer that the model must continue. */
function isUnfinished(item: unknown): boolean {
  if (!isJsonObject(item) || !["message", "reasoning"].includes(String(item.type ?? "message"))) return false;
  return item.status === "in_progress" || item.status === "incomplete";
}

function itemsChat(items: readonly unknown[]): JsonObject[] | undefined {
  const messages: Record<string, unknown>[] = [];
  for (const item of items) {
    const one = isJsonObject(item) ? itemChat(item) : undefined;
    if (!one) return undefined;
    const last = messages.at(-1);
    if (one.adds === undefined || last?.role !== "assistant" || !merges(last, one.adds, one.message)) {
      messages.push({ ...one.message });
    }
  }
  return messages;
}

/** Adds a part of the assistant's turn to its message, if the message can take it. */
function merges(last: Record<string, unknown>, adds: Addition, { [adds]: value }: JsonObject): boolean {
  if (adds === "tool_calls")
    last.tool_calls = [...((last.tool_calls as unknown[] | undefined) ?? []), ...(value as unknown[])];
  else if (isGiven(last[adds])) return false;
  else last[adds] = value;
  return true;
}

interface ItemChat {
  readonly message: JsonObject;
  readonly adds?: Addition;
}

function itemChat(item: JsonObject): ItemChat | undefined {
  switch (item.type) {
    case "function_call":
      return isGiven(item.namespace) ? undefined : { message: callMessage(item), adds: "tool_calls" };
    case "function_call_output":
      return { message: { role: "tool", content: item.output, tool_call_id: item.call_id } };
    case "reasoning":
      return reasoningItem(item);
    default:
      if (typeof item.role !== "string") return undefined;
      return (item.role === "assistant" && answerItem(item.content)) || { message: item };
  }
}

function callMessage({ call_id: id, name, arguments: given }: JsonObject): JsonObject {
  return { role: "assistant", tool_calls: [{ id, type: "function", function: { name, arguments: given } }] };
}

/** Converts the first text. Refuses encrypted content. */
function reasoningItem({ content, summary, encrypted_content: encrypted }: JsonObject): ItemChat | undefined {
  if (isGiven(encrypted)) return undefined;
  const text = firstText(content) ?? firstText(summary) ?? "";
  return { message: { role: "assistant", reasoning: text }, adds: "reasoning" };
}

function answerItem(content: unknown): ItemChat | undefined {
  const text = typeof content === "string" ? content : firstText(content);
  return text === undefined ? undefined : { message: { role: "assistant", content: text }, adds: "content" };
}

function firstText(parts: unknown): string | undefined {
  const [first] = Array.isArray(parts) ? (parts as readonly unknown[]) : [];
  return isJsonObject(first) && typeof first.text === "string" ? first.text : undefined;
}

/** Omits tools that the model does not see. For namespaces and custom tools the engine generates names and schemas. */
function toolsChat(tools: unknown): JsonObject[] | undefined {
  if (!Array.isArray(tools)) return isGiven(tools) ? undefined : [];
  if (!tools.every(isJsonObject) || tools.some(({ type }) => type === "namespace" || type === "custom"))
    return undefined;
  return tools
    .filter(({ type }) => type === "function")
    .map(({ name, description, parameters, strict = null, defer_loading: isDeferred }) => {
      const deferred = isGiven(isDeferred) ? { defer_loading: isDeferred } : {};
      return { type: "function", function: { name, description, parameters, strict, ...deferred } };
    });
}
