import type { JsonObject } from "../files/json-object.ts";
import { isFields } from "../template/fields.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Items that vLLM merges into a message of the assistant that stands before them. */
type Addition = "tool_calls" | "reasoning" | "content";

/**
 * The chat completion that vLLM 0.32 makes of a body of `POST /v1/responses` before it renders it
 * (`entrypoints/openai/responses/utils.py`; 0.23 alike).
 *
 * @returns undefined for a body that the engine would refuse, that goes on with a stored response, or has tools and items
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
  const effort = isFields(reasoning) ? reasoning.effort : undefined;
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

/** Whether the last item is an answer that the model is to go on with. */
function isUnfinished(item: unknown): boolean {
  if (!isFields(item) || !["message", "reasoning"].includes(String(item.type ?? "message"))) return false;
  return item.status === "in_progress" || item.status === "incomplete";
}

function itemsChat(items: readonly unknown[]): JsonObject[] | undefined {
  const messages: Record<string, unknown>[] = [];
  for (const item of items) {
    const one = isFields(item) ? itemChat(item) : undefined;
    if (!one) return undefined;
    const last = messages.at(-1);
    if (one.adds === undefined || last?.role !== "assistant" || !merges(last, one.adds, one.message)) {
      messages.push({ ...one.message });
    }
  }
  return messages;
}

/** Adds a part of the assistant's turn to its message, if there is a place for it. */
function merges(last: Record<string, unknown>, adds: Addition, { [adds]: value }: Fields): boolean {
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

function itemChat(item: Fields): ItemChat | undefined {
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

function callMessage({ call_id: id, name, arguments: given }: Fields): JsonObject {
  return { role: "assistant", tool_calls: [{ id, type: "function", function: { name, arguments: given } }] };
}

/** The first text of it counts. What is encrypted is refused. */
function reasoningItem({ content, summary, encrypted_content: encrypted }: Fields): ItemChat | undefined {
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
  return isFields(first) && typeof first.text === "string" ? first.text : undefined;
}

/** Tools that a model is not shown are left out. Namespaces and custom tools get names and schemas that the engine makes. */
function toolsChat(tools: unknown): JsonObject[] | undefined {
  if (!Array.isArray(tools)) return isGiven(tools) ? undefined : [];
  if (!tools.every(isFields) || tools.some(({ type }) => type === "namespace" || type === "custom")) return undefined;
  return tools
    .filter(({ type }) => type === "function")
    .map(({ name, description, parameters, strict = null, defer_loading: isDeferred }) => {
      const deferred = isGiven(isDeferred) ? { defer_loading: isDeferred } : {};
      return { type: "function", function: { name, description, parameters, strict, ...deferred } };
    });
}
